"""Registration of exported ONNX graphs, with the modules that serve them."""

import os
import shutil
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
import numpy
import onnxruntime
import pandas
import PIL
from mlflow.entities import Metric
from mlflow.models import ModelSignature, infer_signature
from mlflow.models.model import ModelInfo
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.types.schema import Array

from bifocal.durable.sources import source_path
from bifocal.onnx.pyfunc import open_model
from bifocal.onnx.text.sentences import ARRAYS
from bifocal.onnx.text.tokenizer import TOKENIZER
from runtime.artifacts import artifact_hash, read_manifest
from runtime.mlflow.connection import allowed
from runtime.mlflow.parents import kfp_tags
from runtime.mlflow.registry import COMMIT_TAG, EVALUATION_DIR, is_recorded, reuse_version
from runtime.mlflow.runs import DATASETS, digest, git_commit

ROOT = Path(__file__).parents[2]
SERVED_CODE = ("bifocal/onnx", "runtime/mlflow/served_model.py")
"""Package and module that a served model needs. Without ``__init__.py`` they form namespace
packages: in a process that has an installed bifocal, that takes precedence."""


COLUMNS: dict[str, ColSpec | TensorSpec] = {
    "text": ColSpec(DataType.string, "text", required=False),
    # The base64 of an image file.
    "image": ColSpec(DataType.string, "image", required=False),
    "features": ColSpec(Array(Array(DataType.double)), "features", required=False),
}


def register_exported(
    model: str,
    alias: str,
    *,
    graphs: Path,
    evaluation: Path,
    tags: Mapping[str, str],
    description: str,
) -> int:
    """Register the graphs as a new version, unless one has them; return its number. ``tags`` are
    results, the description is the model card; files of the evaluation are logged as ``evidence``
    for promotion.
    """
    registered = reuse_version(
        model, alias, artifact_hash(graphs), evaluation, artifact_hash(evaluation)
    )
    if registered is not None:
        return registered
    mlflow.log_artifacts(str(evaluation), EVALUATION_DIR)
    logged = _log_model(model, graphs)
    _log_scores(logged, evaluation)
    client, kfp_run = mlflow.MlflowClient(), os.environ.get("KFP_RUN_ID")
    tags = {
        COMMIT_TAG: git_commit(),
        **(kfp_tags(kfp_run) if kfp_run else {}),
        **_lineage(evaluation, graphs),
        **tags,
    }
    mlflow.log_params({name: value for name, value in tags.items() if is_recorded(name)})
    number = mlflow.register_model(logged.model_uri, model, tags=tags).version
    client.update_model_version(model, number, description)
    client.set_registered_model_alias(model, alias, number)
    return int(number)


def _log_model(model: str, graphs: Path) -> ModelInfo:
    """Log the graphs with a loader and the modules that serving needs: servers need neither torch
    nor bifocal."""
    opened = open_model(graphs)
    example = opened.example()
    inputs = Schema([COLUMNS[name] for name in opened.columns])
    with TemporaryDirectory() as folder:
        logged: ModelInfo = mlflow.pyfunc.log_model(
            name=model,
            loader_module="runtime.mlflow.served_model",
            data_path=str(graphs),
            code_paths=_copy_code(Path(folder)),
            pip_requirements=_requirements(graphs),
            signature=ModelSignature(
                inputs, infer_signature(example, opened.predict(example)).outputs
            ),
            input_example=example,
        )
    return logged


def _log_scores(logged: ModelInfo, evaluation: Path) -> None:
    manifest, now = read_manifest(evaluation), time.time_ns() // 1_000_000
    where = {
        "dataset_name": DATASETS[0],
        "dataset_digest": digest(manifest["inputs"]["dataset"]),
        "run_id": logged.run_id,
    }
    metrics = [
        Metric(allowed(name), value, now, 0, logged.model_id, **where)
        for name, value in manifest["metrics"].items()
        if value is not None
    ]
    mlflow.MlflowClient().log_batch(logged.run_id, metrics)


def _requirements(graphs: Path) -> list[str]:
    names = [
        f"{package.__name__}=={package.__version__}" for package in (numpy, onnxruntime, pandas)
    ]
    subwords = [f"tokenizers=={version('tokenizers')}"] if any(graphs.rglob(TOKENIZER)) else []
    stems = (
        ("safetensors", "snowballstemmer")
        if any(list(graphs.rglob(name)) for name in ARRAYS)
        else ()
    )
    return [
        *names,
        f"pillow=={PIL.__version__}",
        *subwords,
        *(f"{name}=={version(name)}" for name in stems),
    ]


def _copy_code(folder: Path) -> list[str]:
    package, module = SERVED_CODE
    shutil.copytree(
        source_path(ROOT, package), folder / package, ignore=shutil.ignore_patterns("__*__*")
    )
    (folder / module).parent.mkdir(parents=True)
    shutil.copy(source_path(ROOT, module), folder / module)
    return sorted(map(str, folder.iterdir()))


def _lineage(evaluation: Path, graphs: Path) -> dict[str, str]:
    hashes = {"metrics": artifact_hash(evaluation), "onnx": artifact_hash(graphs)}
    hashes |= read_manifest(evaluation)["inputs"] | read_manifest(graphs)["inputs"]
    return {f"hash.{name}": digest for name, digest in hashes.items()}
