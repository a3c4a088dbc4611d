"""Files that are computed or downloaded once: the user's cache keeps them for the next run."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

from bifocal.durable.changes import write_once
from bifocal.durable.files import delete, file_digest, replace_file, write_text
from bifocal.durable.inside import check_own, is_own_tree
from bifocal.durable.json_values import json_digest
from bifocal.durable.sources import SourceFiles

VARIABLE = "BIFOCAL_CACHE"
KEPT = 30
"""Number of files that the cache keeps, the latest used ones."""
_PARSER = Lock()
"""ast.parse may fail in two threads at once, before Python 3.11.9."""


def cache_folder(name: str) -> Path:
    """Return the folder ``name`` of the cache, which only this user can open.

    The cache is the folder in ``BIFOCAL_CACHE``, else ``bifocal`` in ``XDG_CACHE_HOME`` or
    ``~/.cache``, else, where these cannot be written, a temporary folder that later calls find.

    Raises:
        OSError: it cannot be written.
        ValueError: it is a link, or another user made it.
    """
    chosen = os.environ.get(VARIABLE)
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "bifocal")
    places = [home, Path(tempfile.gettempdir(), f"bifocal-{getattr(os, 'getuid', int)()}")]
    failure: object = None
    for place in [Path(chosen).absolute()] if chosen else places:
        try:
            folder = place.expanduser() / name
            # The chosen folder may be a volume, which belongs to another user.
            for path in [folder] if chosen else [folder.parent, folder]:
                check_own(path)
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.chmod(0o700)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
            failure = f"permission denied: {folder}"
        except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home
            failure = error
    raise OSError(f"the cache cannot be written ({failure}); set {VARIABLE} to a folder that can")


def kept(name: str, *key: Any, code: Iterable[str]) -> Path:
    """Return the path, in the folder ``name`` of the cache, of the output of the modules ``code``
    for ``key``."""
    return cache_folder(name) / json_digest([code_digest(code), *key])[:32]


def state_of(file: Path) -> tuple[str | int, ...]:
    """Return what changes with a file, without reading it; no program can set ctime."""
    found = file.stat()
    return str(file.resolve()), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def is_intact(path: Path) -> bool:
    """Return whether a file or folder of the cache is there, as this user wrote it."""
    sums = _sums(path)
    if not (path.exists() and sums.is_file() and is_own_tree(path) and is_own_tree(sums)):
        return False
    return sums.read_text(encoding="utf-8") == _hashes(path)


def cached_folder(path: Path, write: Callable[[Path], object]) -> Path:
    """Return the folder ``path`` of the cache; ``write(folder)`` makes it, once, and again if its
    files have changed."""

    def write_with_sums(partial: Path) -> None:
        write(partial)
        _sums(path).parent.mkdir(exist_ok=True)
        write_text(_sums(path), _hashes(partial))

    if not is_intact(path):
        if os.path.lexists(path) and not is_intact(path):  # it was not written meanwhile
            delete(path)
        write_once(path, write_with_sums)
    return path


def write_cached(
    key: Sequence[Any], file: Path, write: Callable[..., None], *arguments: Any
) -> None:
    """Write a file by ``write(*arguments, file)``, or copy it from the user's cache, which keeps it
    by ``key`` and the code of the functions and objects."""
    modules = {str(getattr(value, "__module__", "")) for value in (write, *arguments)}
    code = [name for name in modules if name.startswith("bifocal.")]
    place = kept("graphs", version("torch"), file.name, *key, code=code)
    if is_intact(place):
        shutil.copyfile(place, file)
        with contextlib.suppress(OSError):
            place.touch()
        return
    write(*arguments, file)
    # Weights of more than 2 GB are in a file of their own.
    if file.with_name(f"{file.name}.data").exists():
        return
    with contextlib.suppress(OSError):  # without a writable cache, the next run takes the same time
        delete(place)
        _sums(place).parent.mkdir(exist_ok=True)
        write_text(_sums(place), _hashes(file))
        replace_file(place, lambda partial: shutil.copyfile(file, partial))
        files = sorted(
            _sums(place).parent.iterdir(),
            key=lambda sums: place.with_name(sums.name).stat().st_mtime_ns,
        )
        for old in files[:-KEPT]:
            place.with_name(old.name).unlink()
            old.unlink()


def _sums(path: Path) -> Path:
    return path.parent / "sums" / path.name


def _hashes(path: Path) -> str:
    """Return the SHA-256 of a file, or of each file in a folder, as JSON."""
    files = sorted(file for file in (path, *path.rglob("*")) if file.is_file())
    return json.dumps({str(file.relative_to(path)): file_digest(file) for file in files})


def code_digest(modules: Iterable[str]) -> str:
    """Return the SHA-256 of the code that modules of ``bifocal`` import: other code computes again,
    other comments and other parts do not."""
    with _PARSER:
        return json_digest(dict(_sources().closure(modules).files))


@cache
def _sources() -> SourceFiles:
    return SourceFiles(Path(__file__).parents[2])
