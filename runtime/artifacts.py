"""Artifact directories: written to a partial directory, described by a manifest, renamed when complete."""

import fcntl
import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
FINGERPRINT = "fingerprint.json"
CHECKPOINTS = "checkpoints"
_locks: dict[Path, int] = {}
"""Descriptors of the partial directories that this process has locked."""


def open_partial(final: Path, fingerprint: Mapping[str, Any]) -> Path:
    """Return the locked partial directory of ``final``; it keeps a killed run's files with the same ``fingerprint``."""
    partial, text = partial_path(final), _json(fingerprint)
    file = partial / FINGERPRINT
    partial.mkdir(parents=True, exist_ok=True)
    _lock(partial)
    if not (file.is_file() and file.read_text() == text):
        for path in partial.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        file.write_text(text)
    return partial


def partial_path(final: Path) -> Path:
    """Partial directory of artifact ``final``, beside it."""
    return final.with_name(final.name + ".partial")


def commit(partial: Path, final: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of ``partial``, delete its ``checkpoints`` and rename the directory to ``final``."""
    shutil.rmtree(partial / CHECKPOINTS, ignore_errors=True)
    (partial / FINGERPRINT).unlink()
    write_json(partial / MANIFEST, {"schema_version": SCHEMA_VERSION, **manifest, "files": hash_files(partial)})
    previous = final.with_name(final.name + ".previous")
    shutil.rmtree(previous, ignore_errors=True)
    if final.exists():
        # A directory cannot be renamed onto a directory that has files.
        final.rename(previous)
    partial.rename(final)
    _unlock(partial)
    shutil.rmtree(previous, ignore_errors=True)


def read_manifest(artifact: Path) -> dict[str, Any]:
    """Return the manifest of a complete artifact."""
    path = artifact / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{artifact} is missing or incomplete (it has no {MANIFEST}): run the stage that writes it, or 'dvc repro'"
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not complete JSON ({error}): run the stage that writes it again") from error
    if manifest.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {manifest.get('schema_version')}, expected {SCHEMA_VERSION}: "
            "run the stage that writes it again"
        )
    return manifest


def check_files(artifact: Path) -> None:
    """Compare the files of a complete artifact with the hashes of its manifest; other files are ignored."""
    manifest = read_manifest(artifact)
    writer = manifest.get("component", "a stage")
    for name, digest in manifest["files"].items():
        path = artifact / name
        if not path.is_file() or hash_files(path)["."] != digest:
            problem = "differs from its hash in" if path.is_file() else "is missing, but it is in"
            raise ValueError(
                f"{path} {problem} {MANIFEST}: it was changed or damaged after {writer} wrote it; "
                "run that stage again, or 'dvc repro'"
            )


def fingerprint_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fingerprint that the artifact of ``manifest`` was written with, see ``open_partial``."""
    return {key: value for key, value in manifest.items() if key not in ("schema_version", "metrics", "files")}


def artifact_hash(artifact: Path) -> str:
    """SHA-256 over the names and hashes of an artifact's files, from its manifest; the files are not read."""
    return hashlib.sha256(_json(read_manifest(artifact)["files"]).encode()).hexdigest()


def hash_files(root: Path) -> dict[str, str]:
    """SHA-256 of every file below ``root`` by its relative path; of ``root`` itself if it is a file."""
    paths = sorted(root.rglob("*")) if root.is_dir() else [root]
    files: dict[str, str] = {}
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            with path.open("rb") as file:
                files[path.relative_to(root).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return files


def renew_hashes(artifact: Path) -> None:
    """Write the hashes of changed files into the manifest of an artifact that has one."""
    if (artifact / MANIFEST).is_file():
        manifest = read_manifest(artifact)
        (artifact / MANIFEST).unlink()
        write_json(artifact / MANIFEST, manifest | {"files": hash_files(artifact)})


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, NaN and infinity as null; a crash leaves the old file or the whole new one."""
    write_text(path, json.dumps(_without_nan(value), indent=2, sort_keys=True, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8; a crash leaves the old file or the complete new one."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _lock(partial: Path) -> None:
    """Lock a directory until the process ends, however it ends. A file system without such locks is left unlocked."""
    _unlock(partial)
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ValueError(f"another process writes {partial}: wait for its end, or choose another folder") from error
    except OSError:
        os.close(descriptor)
    else:
        _locks[partial] = descriptor


def _unlock(partial: Path) -> None:
    if partial in _locks:
        os.close(_locks.pop(partial))


def _forget_locks() -> None:
    """Close the descriptors in a forked process, which must not keep the lock of a killed parent."""
    for partial in list(_locks):
        _unlock(partial)


os.register_at_fork(after_in_child=_forget_locks)


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
