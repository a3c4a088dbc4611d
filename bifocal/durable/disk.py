"""Flush files to the disk, replace and delete them."""

import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bifocal.durable.locks import locked

FLUSHES = 16
"""Files that are flushed at a time: a journaling file system writes them together."""


def replace_file(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file by ``write(path)``; two processes do so one after the other."""
    aside = file.with_name(f"{file.name}.new")
    with locked(aside, Path.touch):
        try:
            write(aside)
            flush(aside)
            aside.replace(file)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    flush(file.parent)


def write_text(file: Path, text: str) -> None:
    """Write a text file in UTF-8."""
    replace_file(file, lambda path: path.write_text(text, encoding="utf-8"))


def flush(path: Path) -> None:
    """Write a file, or the names in a folder, from the cache of the system to the disk."""
    if os.name == "nt":
        if path.is_dir():  # Windows opens no folder, and flushes only what is open for writing
            return
        descriptor = os.open(path, os.O_RDWR)
    else:
        descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_all(paths: Iterable[Path]) -> None:
    """Flush files, and folders with everything below them."""
    below = [found for path in paths for found in (path, *path.rglob("*"))]
    with ThreadPoolExecutor(FLUSHES) as executor:
        # A link may have no target.
        for _ in executor.map(flush, (path for path in below if path.exists())):
            pass


def make_folder(folder: Path) -> None:
    """Create a folder and its parents; it may exist."""
    folder.mkdir(parents=True, exist_ok=True)


def clear(folder: Path) -> None:
    """Delete the contents of a folder, which may be missing."""
    for path in folder.iterdir() if folder.is_dir() else ():
        delete(path)


def delete(path: Path) -> None:
    """Delete a file, a link, or a folder with its contents; it may be missing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
