"""Datasets of runs and metrics: MLflow shows and searches them (``dataset.digest = '...'``)."""

import json
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag

from runtime.artifacts import artifact_hash, read_manifest

DATASETS = ("dataset", "features", "text")
"""Artifacts that are data."""
MAX_DIGEST = 36
"""Characters of a digest in MLflow's database (mlflow 3.17, ``MAX_DATASET_DIGEST_SIZE``)."""
CONTEXT_TAG = "mlflow.data.context"


def datasets_of(artifacts: Mapping[str, Path], stage: str) -> list[DatasetInput]:
    """Return data artifacts as a run's inputs, with a cut hash as digest and the stage as context."""
    return [
        DatasetInput(_dataset(name, artifacts[name]), [InputTag(CONTEXT_TAG, stage)])
        for name in DATASETS
        if name in artifacts
    ]


def digest(artifact_digest: str) -> str:
    """Return the hash of an artifact as MLflow stores it."""
    return artifact_digest[:MAX_DIGEST]


def _dataset(name: str, artifact: Path) -> Dataset:
    manifest = read_manifest(artifact)
    source = json.dumps({"stage": manifest["component"], "parameters": manifest["parameters"]}, default=str)
    return Dataset(
        name=name,
        digest=digest(artifact_hash(artifact)),
        source_type="bifocal",
        source=source,
        profile=json.dumps(manifest["metrics"]),
    )
