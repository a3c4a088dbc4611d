"""Locks of files and folders: they last until their process ends, however it ends.

A file system without locks is left unlocked, and so is Windows.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bifocal.durable.inside import check_own

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_held: dict[int, Path] = {}
"""Locked files and folders by their descriptors."""


@contextmanager
def locked(
    path: Path, make: Callable[[Path], object] | None = None, *, shared: bool = False
) -> Iterator[None]:
    """Hold the lock of a file or folder, which ``make`` creates; wait while another process or
    thread has it."""
    descriptor = _lock(path, make, shared=shared)
    try:
        yield
    finally:
        _unlock(descriptor)


def hold(folder: Path) -> None:
    """Lock a folder that this process writes until ``release``; ``ValueError`` if another process
    has locked it, or it is not this user's own."""
    check_own(folder)
    release(folder)
    try:
        _lock(folder, wait=False)
    except BlockingIOError as error:
        raise ValueError(
            f"another process writes {folder}: wait for its end, or choose another folder"
        ) from error


def release(folder: Path) -> None:
    """Release the lock of a folder, if this process has it."""
    for descriptor in [number for number, path in _held.items() if path == folder]:
        _unlock(descriptor)


def _lock(
    path: Path,
    make: Callable[[Path], object] | None = None,
    *,
    shared: bool = False,
    wait: bool = True,
) -> int:
    while True:
        if make is not None:
            check_own(path)
            make(path)
        try:
            descriptor = os.open(
                path if fcntl else os.devnull, os.O_RDONLY
            )  # Windows cannot open folders
        except FileNotFoundError:
            if make is None:
                raise
            continue  # another process has renamed it
        _held[descriptor] = path
        if fcntl is None:
            return descriptor
        try:
            fcntl.flock(
                descriptor,
                (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB),
            )
        except BlockingIOError:
            _unlock(descriptor)
            raise
        except OSError:
            return descriptor
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        _unlock(descriptor)  # another process has renamed it


def _unlock(descriptor: int) -> None:
    del _held[descriptor]
    os.close(descriptor)


def _forget_locks() -> None:
    """Close the descriptors in a forked process, which must not keep the lock of a killed
    parent."""
    for descriptor in list(_held):
        _unlock(descriptor)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_locks)
