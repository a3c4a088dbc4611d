"""Runs with the artifacts of a release, and registered versions with releases."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from bifocal.durable import write_json
from bifocal.hubness.bank import HubnessBank
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.collection.collection import Collection
from bifocal.search.index.build import index_of_collection
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX, TrainedModel
from pipelines.commands.registry import release
from runtime.artifacts import artifact_hash, hash_files
from tests.bifocal.serving.runs import write_run

EMBEDDING = Path("artifacts/embedding")
ROOT = Path(__file__).parents[2]


def write_released_run(
    demo: TrainedModel,
    folder: Path,
    prefix: str,
    sign: int = 1,
    noise: float = 0.0,
    calibration: Calibration | None = None,
) -> Path:
    """Write a run with the artifacts of a release; see ``write_run``."""
    write_run(demo, folder, prefix, sign, noise=noise)
    shutil.copy(ROOT / "params.yaml", folder)
    bank_vectors = sign * np.asarray(demo.collection.vectors[:8], np.float32)
    bank = HubnessBank.build(bank_vectors, bank_vectors, "CSLS")
    for part in (EMBEDDING, INDEX):
        (folder / part).mkdir()
    bank.write(folder / EMBEDDING)
    index = index_of_collection(Collection.open(folder / COLLECTION), bank)
    index.calibration = calibration
    index.write(folder / INDEX)
    write_json(
        folder / ONNX / "manifest.json", {"schema_version": 1, "files": hash_files(folder / ONNX)}
    )
    return folder


def register(run: Path) -> int:
    """Register the model of a run as a new version; return its number."""
    import mlflow  # takes seconds

    from runtime.mlflow.connection import connect

    connect()
    # Another test of this process may have selected an experiment of another store.
    mlflow.set_experiment("releases")
    os.environ.pop("MLFLOW_EXPERIMENT_ID")  # or else it would name an experiment to the next test
    with mlflow.start_run():
        logged = mlflow.pyfunc.log_model(
            name="model",
            loader_module="runtime.mlflow.served_model",
            data_path=str(run / ONNX),
            pip_requirements=[],
        )
    tags = {"hash.onnx": artifact_hash(run / ONNX)}
    return int(mlflow.register_model(logged.model_uri, "bifocal", tags=tags).version)


def move_alias(number: int, alias: str = "champion") -> None:
    import mlflow

    mlflow.MlflowClient().set_registered_model_alias("bifocal", alias, str(number))


def add_release(run: Path) -> str:
    done = CliRunner().invoke(release, [str(run)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
