"""Artifact directories: written aside, described by a manifest, renamed when complete."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
KEY = "key.json"


def begin(final: Path, key: Mapping[str, Any]) -> Path:
    """The directory to write artifact ``final`` in: beside it, and still holding what a killed run with the
    same ``key`` (parameters, inputs, code) left there; empty otherwise.
    """
    partial, text = partial_of(final), _json(key)
    if not ((partial / KEY).is_file() and (partial / KEY).read_text() == text):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / KEY).write_text(text)
    return partial


def partial_of(final: Path) -> Path:
    """Where artifact ``final`` is written until it is complete."""
    return final.with_name(final.name + ".partial")


def commit(partial: Path, final: Path, manifest: Mapping[str, Any]) -> None:
    """Describe what stands in ``partial`` and put it in the place of ``final`` in one step.

    Everything called ``checkpoints`` at the top is of no use to a complete artifact, and is left out.
    """
    shutil.rmtree(partial / "checkpoints", ignore_errors=True)
    (partial / KEY).unlink()
    write_json(partial / MANIFEST, {"schema_version": SCHEMA_VERSION, **manifest, "files": hash_files(partial)})
    former = final.with_name(final.name + ".former")
    shutil.rmtree(former, ignore_errors=True)
    if final.exists():
        final.rename(former)
    partial.rename(final)
    shutil.rmtree(former, ignore_errors=True)


def read_manifest(artifact: Path) -> dict[str, Any]:
    """The manifest of a complete artifact.

    Raises:
        FileNotFoundError: there is none; says which stage to run.
        ValueError: it was written by another version of the project.
    """
    path = artifact / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{artifact} is no complete artifact (it has no {MANIFEST}): run the stage that writes it, or 'dvc repro'"
        )
    manifest: dict[str, Any] = json.loads(path.read_text())
    if manifest.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {manifest.get('schema_version')}, expected {SCHEMA_VERSION}: "
            "run the stage that writes it again"
        )
    return manifest


def artifact_hash(artifact: Path) -> str:
    """SHA-256 over the names and contents of an artifact's files, from its manifest: nothing is read again."""
    return hashlib.sha256(_json(read_manifest(artifact)["files"]).encode()).hexdigest()


def hash_files(root: Path) -> dict[str, str]:
    """SHA-256 of every file below ``root`` by its path from there; of ``root`` itself if it is a file."""
    paths = sorted(root.rglob("*")) if root.is_dir() else [root]
    files: dict[str, str] = {}
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            with path.open("rb") as file:
                files[path.relative_to(root).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return files


def code_hash(root: Path, paths: Iterable[str]) -> str:
    """SHA-256 over the source files at ``paths`` below ``root``, whatever git says of them."""
    return hashlib.sha256(_json({path: hash_files(root / path) for path in paths}).encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all."""
    aside = path.with_name(path.name + ".new")
    with aside.open("w") as file:
        json.dump(value, file, indent=2, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
