"""Single files on S3 that are downloaded when they are first opened, such as the images of a dataset."""

import os
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from bifocal.datasets import remote_files
from runtime.artifacts import hash_files
from runtime.s3.cache import cache_folder
from runtime.s3.errors import StorageError
from runtime.s3.storage import Storage
from runtime.s3.uri import SCHEME, cache_path


def fetch_remote_files() -> None:
    """Let ``bifocal`` open files at ``s3://`` addresses in this process."""
    remote_files.set_fetch(local_copy)


def address_of_copy(path: Path) -> str | None:
    """Return the address of the local copy ``path``, None for others; the folder of all copies is ``s3://``."""
    folder = cache_folder()
    return f"{SCHEME}{'/'.join(path.relative_to(folder).parts)}" if path.is_relative_to(folder) else None


def local_copy(address: str, sha256: str) -> Path:
    """Return the local copy of the file at ``address``; download it unless an equal one is there."""
    path = cache_path(address)
    if path.is_file() and hash_files(path)["."] == sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several threads or processes may fetch one file.
    with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", suffix=".download", delete=False) as file:
        temporary = Path(file.name)
    try:
        _storage(os.getpid()).download_file(address, temporary)
        if hash_files(temporary)["."] != sha256:
            raise StorageError(f"{address} has changed since the dataset was made: make the dataset again")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


@cache
def _storage(process: int) -> Storage:
    """Client of this process: a forked one must not share the connections of its parent."""
    return Storage()
