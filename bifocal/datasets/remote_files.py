"""Files at addresses, such as ``s3://bucket/key``, which the program reads with a function that it
sets."""

from collections.abc import Callable
from pathlib import Path

Fetch = Callable[[str, str], Path]
"""Returns the local copy of the file at an address; called by several threads at once. The second
argument is the SHA-256 that the file must have."""
_fetch: Fetch | None = None


def is_address(path: str) -> bool:
    """Whether ``path`` is an address."""
    return "://" in path


def set_fetch(fetch: Fetch | None) -> None:
    """Set the function that this process reads addresses with; None for no function."""
    global _fetch
    _fetch = fetch


def local_copy(address: str, sha256: str) -> Path:
    """Return the local copy of the file at ``address``."""
    if _fetch is None:
        raise ValueError(
            f"{address} is not a file of this machine: copy the images into the dataset, or call "
            "bifocal.datasets.remote_files.set_fetch with a function that downloads a file"
        )
    return _fetch(address, sha256)
