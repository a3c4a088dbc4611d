"""Artifacts of undisturbed runs: two cheap stages, and the small pipeline for the long form."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from components.catalog import pipeline_components
from tests.rehearsals.faults.stages import run_stage, write_params

CHEAP: dict[str, Any] = {
    "prepare_dataset": {"corpus": {"train": 8, "val": 2, "test": 2, "size": 64}},
    "vectorize_captions": {"vectorizer": {"name": "TFIDF"}},
}


@pytest.fixture(scope="session")
def params(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parameters of the small pipeline."""
    return write_params(tmp_path_factory.mktemp("params") / "params.yaml")


@dataclass(frozen=True)
class Cheap:
    """Two stages that take less than a second: parameters, and the artifacts of an undisturbed
    run."""

    params: Path
    artifacts: Path


@pytest.fixture(scope="session")
def cheap(tmp_path_factory: pytest.TempPathFactory, empty_mlflow_store: Path) -> Cheap:
    """The stages prepare_dataset of 12 scenes, and vectorize_captions by tf-idf."""
    folder = tmp_path_factory.mktemp("cheap")
    params = write_params(folder / "params.yaml", CHEAP)
    run_stages(["prepare_dataset", "vectorize_captions"], params, folder, empty_mlflow_store)
    return Cheap(params, folder / "artifacts")


@pytest.fixture(scope="session")
def finished(
    params: Path, tmp_path_factory: pytest.TempPathFactory, empty_mlflow_store: Path
) -> Path:
    """Folder with the artifacts of an undisturbed run of every stage."""
    folder = tmp_path_factory.mktemp("finished")
    stages = [stage.name for stage in pipeline_components() if not stage.side_effects]
    run_stages(stages, params, folder, empty_mlflow_store)
    return folder / "artifacts"


def run_stages(stages: list[str], params: Path, folder: Path, empty_store: Path) -> None:
    store = shutil.copy(empty_store, folder / "mlflow.db")
    with mock.patch.dict(os.environ, {"MLFLOW_TRACKING_URI": f"sqlite:///{store}"}):
        for stage in stages:
            code, output = run_stage(stage, params, folder / "artifacts")
            assert code == 0, output
