"""Single files and folders: written aside, flushed to the disk and renamed."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bifocal.durable.changes import change, complete, is_final
from bifocal.durable.disk import clear, flush, flush_all, make_folder
from bifocal.durable.locks import locked


def append_line(file: Path, line: str) -> None:
    """Append a line in UTF-8; after an error, such as a full disk, the file has its former lines.

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


def write_once(folder: Path, write: Callable[[Path], object]) -> None:
    """Write a folder by ``write(path)``, unless this or another process has written it."""
    try:
        with new_folder(folder) as partial:
            write(partial)
    except FileExistsError:
        if not folder.is_dir():
            raise


@contextmanager
def new_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside ``folder`` to write to, which is renamed to it at the end; on an error, delete it.

    Raises:
        FileExistsError: there is such a folder, and it is not to be replaced.
    """
    partial, root = folder.with_name(f"{folder.name}.partial"), folder.parent
    with locked(partial, make_folder):
        try:
            complete(root)
            if folder.exists() and not replace:
                raise FileExistsError(f"{folder} exists already: name a new folder")
            clear(partial)
            yield partial
            if folder.exists():
                with change(root) as changed:
                    changed.rename(partial, folder)
            else:
                flush_all([partial])
                partial.rename(folder)
                flush(root)
        except BaseException:
            if not is_final(root):
                shutil.rmtree(partial, ignore_errors=True)
            raise
