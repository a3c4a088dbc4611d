"""Shared store: large artifacts on a volume of all steps, at ``BIFOCAL_STORE``. Kubeflow's launcher
copies every input and output of a step, file by file (kubeflow/pipelines 2.17,
backend/src/v2/objectstore/object_store.go:176); with a store, it copies a reference: manifest and
place. A workspace of Kubeflow belongs to one run, but later runs use cached references.
"""

import os
import shutil
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bifocal.durable import json_digest, new_folder, path_inside, write_json
from bifocal.onnx.files import read_json
from runtime import artifacts

VARIABLE = "BIFOCAL_STORE"
REFERENCE = "reference.json"


def places(
    outputs: Mapping[str, Path], large: Container[str], fingerprint: Mapping[str, Any]
) -> dict[str, Path]:
    """Return where each output is written: at its path, or a large one in the store, where a retry
    finds its files."""
    store = os.environ.get(VARIABLE)
    identity = json_digest(fingerprint)[:32]
    return {
        name: Path(store, name, identity) if store and name in large else path
        for name, path in outputs.items()
    }


@contextmanager
def committed(
    outputs: Mapping[str, Path], written: Mapping[str, Path], manifest: Mapping[str, Any]
) -> Iterator[None]:
    """Commit the partial directories of the block at the places ``written``; outputs in the store
    become references."""
    yield
    for name, place in written.items():
        if place != outputs[name]:
            _commit_stored(place, outputs[name], manifest)
    own = [place for name, place in written.items() if place == outputs[name]]
    for folder in sorted({place.parent for place in own}):
        partials = {place: artifacts.partial_path(place) for place in own if place.parent == folder}
        artifacts.commit_all(partials, manifest)


def _commit_stored(place: Path, output: Path, manifest: Mapping[str, Any]) -> None:
    partial = artifacts.partial_path(place)
    if (place / artifacts.MANIFEST).is_file():  # other steps may have mapped its files
        shutil.rmtree(partial)
    else:
        artifacts.commit(partial, place, manifest)
    with new_folder(output, replace=True) as reference:
        shutil.copyfile(place / artifacts.MANIFEST, reference / artifacts.MANIFEST)
        write_json(
            reference / REFERENCE, {"path": place.relative_to(os.environ[VARIABLE]).as_posix()}
        )


def resolve(artifact: Path) -> Path:
    """Return the directory with the files of ``artifact``: itself, or its directory in the
    store."""
    if not (artifact / REFERENCE).is_file():
        return artifact
    path: str = read_json(artifact / REFERENCE)["path"]
    store = os.environ.get(VARIABLE)
    if not store:
        raise ValueError(
            f"{artifact} refers to {path} of the shared store: mount the store, and set "
            f"{VARIABLE} to its folder"
        )
    place = path_inside(Path(store), path)
    manifest = artifacts.read_manifest(artifact)
    if not all((place / name).is_file() for name in [artifacts.MANIFEST, *manifest["files"]]):
        raise FileNotFoundError(
            f"{artifact} refers to {place}, which was deleted from the shared store: run the "
            "pipeline once with --no-cache"
        )
    # Compare the hashes of the manifests, not of the files, which may have many gigabytes.
    if artifacts.artifact_hash(place) != artifacts.artifact_hash(artifact):
        raise ValueError(
            f"{place} is not the artifact that {artifact} refers to: delete it and run the "
            "pipeline again"
        )
    return place
