"""A complete dataset of 50 test images, and a registry with a real sqlite store."""

from pathlib import Path

import mlflow
import pytest

from bifocal.datasets import Dataset, read_dataset
from runtime.artifacts import commit, open_partial
from tests.bifocal.promotion.tiny_models import write_colors


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a complete ``dataset`` of 50 test images."""
    folder = tmp_path_factory.mktemp("artifacts")
    write_colors(open_partial(folder / "dataset", {}), 50)
    manifest = {
        "component": "prepare_dataset",
        "code": "c0de",
        "inputs": {},
        "parameters": {},
        "metrics": {},
    }
    commit(folder / "dataset.partial", folder / "dataset", manifest)
    return folder


@pytest.fixture
def dataset(artifacts: Path) -> Dataset:
    return read_dataset(artifacts / "dataset")


@pytest.fixture
def store(mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(mlflow_store)
    # Another test of this process may have selected an experiment of another store.
    mlflow.set_experiment("promotion")
    return mlflow_store
