"""A registry with two releases, of a good model and of a worse one."""

import shutil
from pathlib import Path

import mlflow
import pytest

from bifocal.search.calibration.calibration import Calibration
from bifocal.search.trained_model import TrainedModel
from runtime.mlflow import VETO
from runtime.mlflow.connection import connect
from tests.pipelines.app.comparison.comparing import BAD, GOOD
from tests.pipelines.releases import add_release, register, write_released_run

CALIBRATION = Calibration(-4.0, 10.0, 5.0, 0.3, 0.0, 0.0, 1.0, 100)


@pytest.fixture(scope="package")
def runs(demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of a good model, and of a model that finds less."""
    folder = tmp_path_factory.mktemp("compared")
    parts = (("good", 1, 0.0), ("bad", -1, 0.3))
    return {
        name: write_released_run(demo, folder / name, f"{name}-", sign, noise, CALIBRATION)
        for name, sign, noise in parts
    }


@pytest.fixture(scope="package")
def registry(
    runs: dict[str, Path], empty_mlflow_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Address of a store with version 1, the good model, and version 2."""
    folder = tmp_path_factory.mktemp("registry")
    address = f"sqlite:///{shutil.copy(empty_mlflow_store, folder / 'mlflow.db')}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", address)
        connect()
        # The process of the service has another working directory.
        mlflow.create_experiment("releases", (folder / "files").as_uri())
        assert [register(runs["good"]), register(runs["bad"])] == [GOOD, BAD]
        for run in runs.values():
            add_release(run)
    return address


@pytest.fixture
def store(registry: str, monkeypatch: pytest.MonkeyPatch) -> mlflow.MlflowClient:
    """Client of the store, without withdrawals."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry)
    client = connect()
    for number in (GOOD, BAD):
        if VETO in client.get_model_version("bifocal", str(number)).tags:
            client.delete_model_version_tag("bifocal", str(number), VETO)
    return client


@pytest.fixture(scope="package")
def sentences(demo: TrainedModel) -> list[str]:
    return [demo.collection.captions(row)[0] for row in range(0, 256, 8)]
