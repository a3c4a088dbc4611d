"""Single files and folders: written aside, flushed to the disk and renamed, or deleted."""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bifocal.durable.inside import check_own
from bifocal.durable.locks import locked

FLUSHES = 16
"""Files that are flushed at a time: a journaling file system writes them together."""


def replace_file(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file by ``write(path)``; two processes do so one after the other."""
    aside = file.with_name(f"{file.name}.new")
    with locked(aside, Path.touch):
        try:
            write(aside)
            flush(aside, _mode())
            aside.replace(file)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    flush(file.parent)


def write_text(file: Path, text: str) -> None:
    """Write a text file in UTF-8."""
    replace_file(file, lambda path: path.write_text(text, encoding="utf-8"))


def append_line(file: Path, line: str) -> None:
    """Append a line in UTF-8; after an error, such as a full disk, the file has its previous lines.

    Example:
        >>> from tempfile import mkdtemp
        >>> file = Path(mkdtemp()) / "ids"
        >>> _ = file.write_text("torn")
        >>> append_line(file, "whole")
        >>> file.read_text()
        'torn\\nwhole\\n'
    """
    is_new = not file.exists()
    with file.open("a+b", buffering=0) as opened, locked(file):
        length = opened.seek(0, os.SEEK_END)
        opened.seek(max(length - 1, 0))
        # A process that was killed while it wrote has left a part of a line.
        content = (b"" if opened.read(1) in (b"", b"\n") else b"\n") + f"{line}\n".encode()
        try:
            if opened.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(opened.fileno())
        except OSError:
            opened.truncate(length)
            raise
    if is_new:
        flush(file.parent)


def _mode() -> int:
    """Return the mode of a new file by the umask, which can only be read by writing it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def flush(path: Path, mode: int = 0) -> None:
    """Write a file, or the names in a folder, from the cache of the system to the disk.

    Args:
        mode: that an own file gets: safetensors renames a temporary file, which only its owner can
            read. A link and its target stay as they are.
    """
    if os.name == "nt":
        if path.is_dir():  # Windows cannot open folders, and flushes only files open for writing
            return
        descriptor = os.open(path, os.O_RDWR)
    else:
        descriptor = os.open(path, os.O_RDONLY)
    try:
        found = os.fstat(descriptor)
        is_own = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and not path.is_symlink()
        if is_own and mode & ~found.st_mode:
            path.chmod(stat.S_IMODE(found.st_mode) | mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_all(paths: Iterable[Path]) -> None:
    """Flush files, and folders with everything below them; files get the mode of the umask."""
    below = [found for path in paths for found in (path, *path.rglob("*"))]
    mode = _mode()
    with ThreadPoolExecutor(FLUSHES) as executor:
        # A link may have no target.
        for _ in executor.map(
            lambda path: flush(path, mode), (path for path in below if path.exists())
        ):
            pass


def clear(folder: Path) -> None:
    """Delete the contents of an own folder, which may be missing."""
    check_own(folder)
    for path in folder.iterdir() if folder.is_dir() else ():
        delete(path)


def delete(path: Path) -> None:
    """Delete a file, a link, or a folder with its contents; it may be missing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link(source: Path | str, target: Path | str) -> None:
    """Link a file in place of ``target``, or copy it if hard links are impossible."""
    place = Path(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    try:
        os.link(Path(source).resolve(), place)  # not the link of a cache
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, place)


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
