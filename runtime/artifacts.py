"""Artifact directories: written to a partial directory, described by a manifest, renamed when
complete."""

import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from bifocal.durable import (
    Change,
    change,
    clear,
    complete,
    file_digest,
    hold,
    is_own_tree,
    json_digest,
    release,
    write_json,
)
from bifocal.progress import log_line
from runtime.spec import flatten

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
FINGERPRINT = "fingerprint.json"
CHECKPOINTS = "checkpoints"


def open_partial(final: Path, fingerprint: Mapping[str, Any]) -> Path:
    """Return the locked partial directory of ``final``; it keeps a killed run's files with the same
    ``fingerprint``."""
    partial = partial_path(final)
    text = json.dumps(fingerprint, sort_keys=True, default=str)
    file = partial / FINGERPRINT
    complete(final.parent)
    partial.mkdir(parents=True, exist_ok=True)
    hold(partial)
    is_own = is_own_tree(partial)
    previous = file.read_text() if is_own and file.is_file() else ""
    if previous != text:
        if not is_own:
            log_line(f"{partial} is discarded: it has links, or files of another user")
        elif previous and len(list(partial.iterdir())) > 1:
            log_line(
                f"{partial}: a killed run is discarded, because this run differs: "
                f"{_changes(previous, text)}"
            )
        clear(partial)
        file.write_text(text)
    return partial


def _changes(previous: str, text: str) -> str:
    """Return up to three values that differ between two fingerprints."""
    try:
        old, new = (flatten(json.loads(fingerprint)) for fingerprint in (previous, text))
    except (ValueError, RecursionError):
        return "its fingerprint was cut"
    changed = [
        f"{key} {str(old.get(key))[:40]} -> {str(new.get(key))[:40]}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    return ", ".join(changed[:3]) + f" and {len(changed) - 3} more" * (len(changed) > 3)


def partial_path(final: Path) -> Path:
    """Partial directory of artifact ``final``, beside it."""
    return final.with_name(final.name + ".partial")


def commit(partial: Path, final: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of ``partial`` and rename the directory to ``final``; see
    ``commit_all``."""
    commit_all({final: partial}, manifest)


def commit_all(partials: Mapping[Path, Path], manifest: Mapping[str, Any]) -> None:
    """Write the manifests of partial directories, and rename them to their artifacts, which are in
    one folder.

    All artifacts change together. A killed process keeps its work: ``checkpoints`` and fingerprint
    are deleted last.
    """
    with change(next(iter(partials)).parent) as changed:
        for final, partial in partials.items():
            files = hash_files(
                partial, without=(FINGERPRINT, MANIFEST, f"{MANIFEST}.new", CHECKPOINTS)
            )
            write_json(
                partial / MANIFEST, {"schema_version": SCHEMA_VERSION, **manifest, "files": files}
            )
            changed.rename(partial, final)
            changed.delete(final / CHECKPOINTS)
            changed.delete(final / FINGERPRINT)
    for partial in partials.values():
        release(partial)


def change_manifest(changed: Change, artifact: Path) -> None:
    """Write the manifest of an artifact that has one, for the files that a change below it writes
    and deletes."""
    if not (artifact / MANIFEST).is_file():
        return
    manifest = read_manifest(artifact)
    files: dict[str, str] = manifest["files"]
    for path in filter(lambda path: path.is_relative_to(artifact), changed.deleted):
        files.pop(path.relative_to(artifact).as_posix(), None)
    for path, written in changed.written.items():
        if path.is_relative_to(artifact):
            files[path.relative_to(artifact).as_posix()] = hash_files(written)["."]
    changed.write(artifact / MANIFEST, lambda file: write_json(file, manifest))


def read_manifest(artifact: Path) -> dict[str, Any]:
    """Return the manifest of a complete artifact."""
    path = artifact / MANIFEST
    complete(artifact.parent)
    if not path.is_file():
        raise FileNotFoundError(
            f"{artifact} is missing or incomplete (it has no {MANIFEST}): run the stage that "
            "writes it, or 'dvc repro'"
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not complete JSON ({error}): run the stage that writes it again"
        ) from error
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {version}, expected "
            f"{SCHEMA_VERSION}: run the stage that writes it again"
        )
    return manifest


def check_files(artifact: Path) -> None:
    """Compare the files of a complete artifact with the hashes of its manifest; other files are
    ignored."""
    manifest = read_manifest(artifact)
    writer = manifest.get("component", "a stage")
    paths = [artifact / name for name in manifest["files"]]
    present = list(filter(Path.is_file, paths))
    found = dict(zip(present, map(file_digest, present), strict=True))
    for path, digest in zip(paths, manifest["files"].values(), strict=True):
        if found.get(path) != digest:
            problem = "differs from its hash in" if path in found else "is missing, but it is in"
            raise ValueError(
                f"{path} {problem} {MANIFEST}: it was changed or damaged after {writer} wrote it; "
                "run that stage again, or 'dvc repro'"
            )


def fingerprint_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fingerprint that the artifact of ``manifest`` was written with, see
    ``open_partial``."""
    return {
        key: value
        for key, value in manifest.items()
        if key not in ("schema_version", "metrics", "files")
    }


def artifact_hash(artifact: Path) -> str:
    """SHA-256 over the names and hashes of an artifact's files, from its manifest; the files are
    not read."""
    return json_digest(read_manifest(artifact)["files"])


def hash_files(root: Path, without: Container[str] = ()) -> dict[str, str]:
    """SHA-256 of every file below ``root`` by its relative path; of ``root`` itself if it is a
    file.

    Args:
        without: names of files and folders in ``root`` to leave out.
    """
    paths = sorted(root.rglob("*")) if root.is_dir() else [root]
    files: dict[str, str] = {}
    for path in paths:
        name = path.relative_to(root)
        if (
            path.is_file()
            and "__pycache__" not in path.parts
            and (not name.parts or name.parts[0] not in without)
        ):
            files[name.as_posix()] = file_digest(path)
    return files
