"""Step release: run. ``python -m pipelines release`` calls the same functions."""

from pathlib import Path

from bifocal.durable import write_json
from bifocal.onnx.files import read_json
from bifocal.progress import log_line
from runtime.mlflow import get_version_number
from runtime.mlflow.releases import log_release, read_digest
from runtime.spec import Params


def run(
    params: Params,
    *,
    embedding: Path,
    onnx: Path,
    collection: Path,
    index: Path,
    registration: Path,
    released: Path,
) -> dict[str, float]:
    """Make the artifacts the release of the version in ``registration``, unless its release has the
    same contents."""
    registered = read_json(registration / "registration.json")
    version = get_version_number(registered["model"], registered["version"])
    logged = log_release(
        version, onnx, collection, index, embedding, previous=registered.get("release")
    )
    digest = read_digest(version)
    change = "now has the release" if logged else "has no new images, and keeps the release"
    log_line(f"{version.model} version {version.number} {change} {digest[:12]}")
    write_json(
        released / "release.json",
        {"model": version.model, "version": version.number, "release": digest},
    )
    return {"version": version.number, "released": float(logged)}
