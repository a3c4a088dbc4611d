"""Versions of tiny ONNX models, and the decisions that the registry keeps about them."""

import json
import shutil
from pathlib import Path
from typing import Any

import mlflow
import yaml
from mlflow.models import Model

from bifocal.datasets import Dataset
from bifocal.durable import write_json
from components.cluster.policies import PromotionPolicy
from components.cluster.promote import PromotionDecision, promote
from runtime.artifacts import artifact_hash, hash_files
from runtime.mlflow import EVALUATION_DIR, get_version
from tests.bifocal.promotion.tiny_models import pointing, write_evaluation, write_model

ROOT = Path(__file__).parents[3]
FILE = ROOT / "pipelines/policies/promotion.yaml"
POLICY = PromotionPolicy.model_validate(yaml.safe_load(FILE.read_text())).model_copy(
    update={
        "min_images": 40,
        "max_latency_ratio": 100.0,
        "looks": 4,
        "max_drops": {"pointing": 9.0},
    }
)


def register(
    folder: Path, dataset: Dataset, noise: float, *, commit: str = "c0ffee", hits: float = 0.5
) -> int:
    """Register a version with all its files; return its number."""
    write_model(folder / "onnx", len(dataset.images), noise)
    write_evaluation(folder / "evidence", dataset, pointing(dataset, hits))
    files = hash_files(folder / "onnx", without=("manifest.json", "MLmodel"))
    write_json(folder / "onnx/manifest.json", {"schema_version": 1, "files": files})
    tags, client = (
        {"git_commit": commit, "hash.onnx": artifact_hash(folder / "onnx")},
        mlflow.MlflowClient(),
    )
    with mlflow.start_run() as active:
        mlflow.log_params(tags)
        shutil.copytree(folder / "onnx", folder / "model/onnx")
        Model(flavors={"python_function": {"data": "onnx"}}).save(folder / "model/MLmodel")
        mlflow.log_artifacts(str(folder / "evidence"), EVALUATION_DIR)
    if not client.search_registered_models(f"name = '{POLICY.model}'"):
        client.create_registered_model(POLICY.model)
    version = client.create_model_version(
        POLICY.model, (folder / "model").as_uri(), active.info.run_id, tags=tags
    )
    client.set_registered_model_alias(POLICY.model, POLICY.candidate, version.version)
    return int(version.version)


def decide(artifacts: Path, policy: PromotionPolicy = POLICY, **options: Any) -> PromotionDecision:
    return promote(policy, artifacts / "dataset", artifacts / "features", **options)


def number_of(alias: str) -> int | None:
    version = get_version(POLICY.model, alias)
    return version.number if version else None


def decisions(number: int) -> tuple[dict[str, str], list[dict[str, Any]]]:
    client = mlflow.MlflowClient()
    version = client.get_model_version(POLICY.model, str(number))
    files = client.list_artifacts(version.run_id, "promotion")
    texts = [
        Path(mlflow.artifacts.download_artifacts(run_id=version.run_id, artifact_path=f.path))
        for f in files
    ]
    return version.tags, [json.loads(path.read_text()) for path in texts]
