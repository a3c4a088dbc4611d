"""Retention: which artifacts and checkpoints of previous runs nothing needs any more."""

import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from runtime.artifacts import MANIFEST, artifact_hash, read_manifest
from runtime.s3.storage import Storage
from runtime.s3.uri import is_remote

IDENTITY = re.compile(r"[0-9a-f]{32}")
"""Name of the folder of a training's checkpoints, and of an artifact in a shared store."""
PARTIAL = ".partial"


@dataclass(frozen=True)
class Unit:
    """Files that are deleted together: an artifact, a partial one, or the checkpoints of a
    training.

    Attributes:
        address: folder of the files.
        name: of the artifact, such as "features"; "" for checkpoints and partial artifacts.
        changed: time of the newest file.
        size: bytes of all files.
        digest: hash of an artifact, see ``artifact_hash``.
        inputs: hashes of the artifacts that it was made of.
    """

    address: str
    name: str
    changed: datetime
    size: int
    digest: str = ""
    inputs: frozenset[str] = frozenset()


def reachable(roots: Collection[str], needs: Iterable[tuple[str, Collection[str]]]) -> set[str]:
    """Return ``roots`` with all that they need; ``needs`` has pairs of a name and what it needs."""
    edges, found = dict[str, set[str]](), set(roots)
    for name, needed in needs:
        edges.setdefault(name, set()).update(needed)
    waiting = list(found)
    while waiting:
        new = edges.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def unneeded(
    units: Collection[Unit], needed: Collection[str], now: datetime, days: int, newest: int
) -> list[Unit]:
    """Return the units to delete, in an order that deletes an artifact before its inputs.

    Needed are units that changed within ``days``, also by a job that runs; the ``newest`` artifacts
    of each name, which Kubeflow's cache still gives to new runs; artifacts with a hash in
    ``needed``, such as those of registered versions; and everything that needed artifacts were made
    of.
    """
    roots, ranks, start = set(needed), dict[str, int](), now - timedelta(days=days)
    for unit in sorted(units, key=lambda unit: unit.changed, reverse=True):
        if unit.name:
            ranks[unit.name] = ranks.get(unit.name, 0) + 1
        if unit.digest and (ranks[unit.name] <= newest or unit.changed > start):
            roots.add(unit.digest)
    kept = reachable(roots, ((unit.digest, unit.inputs) for unit in units))
    old = [unit for unit in units if unit.changed <= start and unit.digest not in kept]
    return sorted(old, key=lambda unit: unit.changed, reverse=True)


def artifact_units(address: str) -> list[Unit]:
    """Return the complete and the partial artifacts below a folder, on S3 or a disk; other files
    are left out."""
    files = _files(address)
    roots = {
        str(PurePosixPath(name).parent) for name in files if PurePosixPath(name).name == MANIFEST
    }
    grouped: dict[str, list[str]] = {}
    for name in files:
        parents = [str(parent) for parent in PurePosixPath(name).parents]
        partial = [parent for parent in parents if parent.endswith(PARTIAL)]
        root = next(iter(partial), None) or next(filter(roots.__contains__, parents), None)
        if root not in (None, "."):
            grouped.setdefault(str(root), []).append(name)
    return [_unit(address, root, files, names) for root, names in grouped.items()]


def checkpoint_units(address: str) -> list[Unit]:
    """Return the checkpoints of each training below a folder on S3."""
    files, grouped = _files(address), dict[str, list[str]]()
    for name in files:
        first, _, rest = name.partition("/")
        if rest and IDENTITY.fullmatch(first):
            grouped.setdefault(first, []).append(name)
    return [_unit(address, root, files, names) for root, names in grouped.items()]


def delete_unit(unit: Unit) -> None:
    """Delete the files; the manifest last, so that a killed deletion is found again."""
    if is_remote(unit.address):
        for name in _files(unit.address):
            if name != MANIFEST:
                Storage().delete(f"{unit.address}/{name}")
        Storage().delete(unit.address)
        return
    folder = Path(unit.address)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != MANIFEST:
            path.unlink()
    shutil.rmtree(folder)


def _files(address: str) -> Mapping[str, tuple[int, datetime]]:
    """Return size and time of the last change of each file by its name."""
    if is_remote(address):
        return Storage().listing(address)
    found = {}
    for path in filter(Path.is_file, Path(address).rglob("*")):
        stat = path.stat()
        found[path.relative_to(address).as_posix()] = (
            stat.st_size,
            datetime.fromtimestamp(stat.st_mtime, UTC),
        )
    return found


def _unit(
    address: str, root: str, files: Mapping[str, tuple[int, datetime]], names: list[str]
) -> Unit:
    folder = f"{address.rstrip('/')}/{root}"
    sizes, times = zip(*(files[file] for file in names), strict=True)
    if root.endswith(PARTIAL) or f"{root}/{MANIFEST}" not in names:
        return Unit(folder, "", max(times), sum(sizes))
    name = PurePosixPath(root).name
    if IDENTITY.fullmatch(name):  # in a shared store, the folder above has the name of the output
        name = PurePosixPath(root).parent.name or name
    with TemporaryDirectory() as copied:
        if is_remote(address):
            Storage().download_file(f"{folder}/{MANIFEST}", Path(copied, MANIFEST))
        path = Path(copied if is_remote(address) else folder)
        digest, inputs = (
            artifact_hash(path),
            frozenset(read_manifest(path).get("inputs", {}).values()),
        )
    return Unit(folder, name, max(times), sum(sizes), digest, inputs)
