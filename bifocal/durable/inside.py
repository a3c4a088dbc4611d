"""Files below a folder that somebody else may have written, and files that only this user makes."""

import os
import stat
import tempfile
from functools import lru_cache
from io import BufferedReader
from pathlib import Path, PurePath

CACHES = (".dvc/cache", ".git/annex/objects")
"""Folders of a project to which DVC and git-annex make links."""


def exists(path: Path) -> bool:
    """Return whether a path leads to a file or folder that this user may see."""
    try:
        return path.exists()
    except OSError:
        return False


def is_inside(root: Path, path: Path, *, caches: bool = False) -> bool:
    """Return whether a path, with its links followed, is below a folder.

    Args:
        caches: those of DVC, git-annex and the Hugging Face hub count, if the folder is in the same
            project.
    """
    folder = os.path.realpath(root)
    real, places = Path(os.path.realpath(path)), _caches(folder) if caches else ()
    return any(real != place and real.is_relative_to(place) for place in (Path(folder), *places))


@lru_cache(256)
def _caches(folder: str) -> tuple[Path, ...]:
    above = [Path(folder), *Path(folder).parents]
    caches = [parent / cache for parent in above for cache in CACHES]
    caches += [parent.parent / "blobs" for parent in above if parent.name == "snapshots"]
    # A cache that is a link itself may be one to everything.
    return tuple(path for path in caches if exists(path) and os.path.realpath(path) == str(path))


def path_inside(
    root: Path, name: str | PurePath, *, caches: bool = False, follow_links: bool = False
) -> Path:
    """Return the resolved path of ``name`` below a folder.

    Links are followed, as long as they stay in the folder: hand the path to what opens files by
    name, and use ``open_inside`` for everything else.

    Args:
        caches: links to a cache of the folder's own project are followed too, see ``is_inside``.
        follow_links: all links are followed: the user has said so for this folder.

    Raises:
        ValueError: the name is absolute, has "..", or leads out of the folder by a link.
    """
    pure = PurePath(name)
    is_plain = not (pure.is_absolute() or pure.drive or ".." in pure.parts or "\0" in str(name))
    if not is_plain or not (follow_links or is_inside(root, root / name, caches=caches)):
        raise ValueError(f"{str(name)!r} is not a path inside its folder {root}")
    return Path(os.path.realpath(root / name))


def open_inside(
    root: Path, name: str | PurePath, *, caches: bool = False, follow_links: bool = False
) -> BufferedReader:
    """Open a regular file below a folder, once; the arguments are those of ``path_inside``.

    The path is resolved, then walked folder by folder without links: a file that is exchanged for a
    link in between is not opened.

    Raises:
        ValueError: the name leads out of the folder, or is not a regular file.
    """
    return open_once(path_inside(root, name, caches=caches, follow_links=follow_links))


def open_once(path: Path) -> BufferedReader:
    """Open a regular file by its resolved path, without links; ``ValueError`` for other files."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # a named pipe would wait for its writer
    if os.open not in os.supports_dir_fd:  # Windows
        return _regular(os.open(path, flags | getattr(os, "O_BINARY", 0)), path)
    folder = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY  # it may not be listable
    descriptor = os.open(path.anchor, folder)
    for place in (*reversed(path.parents[:-1]), path):
        kind = flags if place == path else folder
        try:
            below = os.open(place.name, kind | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return _regular(descriptor, path)


def check_own(path: Path) -> None:
    """Raise ``ValueError`` for a file or folder that is a link, also a hard one, or that another
    user made; it may be missing.

    What a command keeps for itself is accepted only if this passes: anybody can put a file of its
    name into a folder that they hand on.
    """
    if not _is_own(path) or (path.is_file() and path.stat().st_nlink > 1):
        raise ValueError(
            f"{path} is a link, or belongs to another user: this program did not make it; delete "
            "it, or choose another folder"
        )


def is_own_tree(folder: Path) -> bool:
    """Return whether a folder and everything below it is this user's own, without links."""
    return _is_own(folder) and all(_is_own(path) for path in folder.rglob("*"))


def _is_own(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return True
    if stat.S_ISLNK(found.st_mode):
        return False
    if os.name == "nt" or found.st_uid == os.geteuid():
        return True
    try:  # a network file system may give all files to one user
        with tempfile.TemporaryFile(dir=path.parent) as made:
            return os.fstat(made.fileno()).st_uid == found.st_uid
    except OSError:
        return False


def _regular(descriptor: int, path: Path) -> BufferedReader:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")
