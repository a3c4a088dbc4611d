"""Files that are computed once: the user's cache keeps them for the next run."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bifocal.durable.files import cache_folder

KEPT = 30
"""Number of files that the cache keeps, the latest used ones."""


def write_cached(
    key: Sequence[Any], file: Path, write: Callable[..., None], *arguments: Any
) -> None:
    """Write a file by ``write(*arguments, file)``, or copy it from the user's cache, which keeps it
    by ``key``."""
    content = json.dumps(
        [code_digest(), version("torch"), file.name, *key], sort_keys=True, default=list
    )
    kept = cache_folder() / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}-{file.name}"
    if kept.is_file():
        shutil.copyfile(kept, file)
        with contextlib.suppress(OSError):
            kept.touch()
        return
    write(*arguments, file)
    if file.with_name(
        f"{file.name}.data"
    ).exists():  # weights of more than 2 GB are in a file of their own
        return
    with contextlib.suppress(OSError):  # without a writable cache, the next run takes the same time
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_name(f"{kept.name}.{os.getpid()}")
        shutil.copyfile(file, partial)
        partial.replace(kept)
        files = sorted(kept.parent.glob("*-*"), key=lambda file: file.stat().st_mtime_ns)
        for old in files[:-KEPT]:
            old.unlink()


@cache
def code_digest() -> str:
    """Return the SHA-256 of the sources of ``bifocal``: other code computes again."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
