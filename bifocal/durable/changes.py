"""Changes of several files and folders, all or none, by a journal; and new folders.

A journal deletes and renames, so it counts only where it was written: it holds the number and the
time of change of an empty file beside it, which no archive and no copy restores.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bifocal.durable.files import clear, delete, flush, flush_all
from bifocal.durable.inside import check_own, path_inside
from bifocal.durable.json_values import write_json
from bifocal.durable.locks import locked

CHANGE, JOURNAL, MARK = ".change", "journal.json", "mark"
"""Folder beside the changed files, the file in it that makes a change final, and the empty file."""


class Change:
    """Files and folders below ``root`` that change together, see ``change``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.written: dict[Path, Path] = {}  # new contents by the file that they will replace
        self.deleted: list[Path] = []
        self._renamed: dict[Path, Path] = {}

    def write(self, file: Path, write: Callable[[Path], object]) -> None:
        """Write the new contents of a file by ``write(path)``."""
        self.written[file] = self.root / CHANGE / str(len(self.written))
        write(self.written[file])

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or folder, in place of the target if there is one."""
        self._renamed[target] = source

    def delete(self, path: Path) -> None:
        """Delete a file or folder after the others are renamed; it may be missing."""
        self.deleted.append(path)

    def commit(self) -> None:
        """Make the change final."""
        renamed = {**self.written, **self._renamed}
        flush_all(renamed.values())
        journal = {
            "renamed": [
                [_below(source, self.root), _below(target, self.root)]
                for target, source in renamed.items()
            ],
            "deleted": [_below(path, self.root) for path in self.deleted],
            "mark": _mark(self.root / CHANGE),
        }
        write_json(self.root / CHANGE / JOURNAL, journal)
        _complete(self.root)


@contextmanager
def change(root: Path) -> Iterator[Change]:
    """Change files and folders below ``root`` together at the end of the block; an error changes
    nothing.

    Other processes wait: they change or open the files of ``root`` before or after it.
    """
    with locked(root):
        _complete(root)
        clear(root / CHANGE)
        (root / CHANGE).mkdir(exist_ok=True)
        (root / CHANGE / MARK).touch()
        changed = Change(root)
        try:
            yield changed
            changed.commit()
        except BaseException:
            if not is_final(root):
                shutil.rmtree(root / CHANGE, ignore_errors=True)
            raise


def complete(root: Path) -> None:
    """Complete the change below ``root`` that a killed process left."""
    if is_final(root):
        with locked(root):
            _complete(root)


@contextmanager
def reading(*roots: Path) -> Iterator[None]:
    """Complete the changes of killed processes below folders, and let no process change them in the
    block."""
    with ExitStack() as stack:
        for root in sorted(set(roots)):
            while True:
                complete(root)
                shared = ExitStack()
                shared.enter_context(locked(root, shared=True))
                if not is_final(root):
                    break
                shared.close()  # a process was killed while this one waited
            stack.push(shared)
        yield


def is_final(root: Path) -> bool:
    """Return whether a change below ``root`` is final, but not complete."""
    return (root / CHANGE / JOURNAL).is_file()


def _complete(root: Path) -> None:
    """Rename and delete what the journal lists, and delete the journal last: a second time does the
    rest."""
    folder = root / CHANGE
    if not is_final(root):
        return
    for path in (folder, folder / JOURNAL):
        check_own(path)
    try:
        journal = json.loads((folder / JOURNAL).read_text(encoding="utf-8"))
        is_own = journal["mark"] is not None and journal["mark"] == _mark(folder)
    except (ValueError, TypeError, LookupError, RecursionError):
        is_own = False
    if not is_own:
        raise ValueError(
            f"{folder / JOURNAL} was not written here: it came with a copy or an archive, and "
            f"nothing of it was done; delete {folder}"
        )
    for number, (source, target) in enumerate(journal["renamed"]):
        if (root / source).exists():
            if (root / target).is_dir():  # a folder cannot be renamed onto one that has files
                (root / target).rename(folder / f"previous-{number}")
            (root / source).replace(root / target)
    for name in journal["deleted"]:
        delete(root / name)
    for parent in sorted(
        {(root / name).parent for name in [*dict(journal["renamed"]).values(), *journal["deleted"]]}
    ):
        if parent.is_dir():
            flush(parent)
    for path in folder.iterdir():
        if path.name not in (JOURNAL, MARK):
            delete(path)
    (folder / JOURNAL).unlink()
    (folder / MARK).unlink()
    folder.rmdir()


def _mark(folder: Path) -> list[int] | None:
    try:
        found = (folder / MARK).lstat()
    except FileNotFoundError:
        return None
    return [found.st_ino, found.st_ctime_ns]


def write_once(folder: Path, write: Callable[[Path], object]) -> None:
    """Write a folder by ``write(path)``, unless this or another process has written it."""
    try:
        with new_folder(folder) as partial:
            write(partial)
    except FileExistsError:
        check_own(folder)
        if not folder.is_dir():
            raise


@contextmanager
def new_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside ``folder`` to write to, which is renamed to it at the end; on an
    error, delete it.

    Raises:
        FileExistsError: there is such a folder, and it is not to be replaced.
    """
    partial, root = folder.with_name(f"{folder.name}.partial"), folder.parent
    with locked(partial, _make_folder):
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


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _below(path: Path, root: Path) -> str:
    name = path.relative_to(root)
    if len(name.parts) > 1:  # a link at the top is renamed and deleted itself
        path_inside(root, name.parent)
    return name.as_posix()
