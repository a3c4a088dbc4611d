"""Step fetch_release: run."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bifocal.durable import write_json
from runtime.artifacts import MANIFEST
from runtime.mlflow import get_version_number
from runtime.mlflow.releases import COLLECTION, HUBNESS, INDEX, download_release

if TYPE_CHECKING:
    from components.cluster.steps import FetchReleaseParams


def run(
    params: "FetchReleaseParams",
    *,
    version: str,
    release: str,
    embedding: Path,
    onnx: Path,
    collection: Path,
    index: Path,
    registration: Path,
) -> dict[str, float]:
    """Download a release and verify its hashes; ``embedding`` gets only the hubness bank, if there
    is one. Without a ``version``, write nothing."""
    if not version:
        return {"version": 0}
    found = get_version_number(params.model, int(version))
    with TemporaryDirectory() as folder:
        graphs, released = download_release(found, release, Path(folder), features=True)
        parts = {
            onnx: graphs,
            collection: released / COLLECTION,
            index: released / INDEX,
            embedding: released / HUBNESS,
        }
        for target, part in parts.items():
            if part.is_dir():
                # The manifest of the stage that wrote the part does not describe the output of this
                # one.
                shutil.copytree(
                    part, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST)
                )
    write_json(
        registration / "registration.json",
        {"model": params.model, "version": found.number, "release": release},
    )
    return {"version": found.number}
