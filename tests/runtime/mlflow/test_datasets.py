"""Datasets and system metrics of stage runs in MLflow."""

import json
import time
from pathlib import Path

import mlflow
import pytest

from runtime import artifacts
from runtime.mlflow import log_datasets, stage_run

VALUES = {"seed": 1, "toy": {"rate": 0.5}}


@pytest.fixture
def store(mlflow_store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("KFP_RUN_ID", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    mlflow.set_tracking_uri(mlflow_store)
    return mlflow_store


def artifact(folder: Path, name: str) -> Path:
    partial = artifacts.open_partial(folder / name, {})
    (partial / "data.txt").write_text(name)
    manifest = {"component": "prepare_dataset", "parameters": {"corpus": "Toy"}, "metrics": {"images": 7}}
    artifacts.commit(partial, folder / name, manifest)
    return folder / name


def test_runs_name_their_datasets_by_the_hash_of_the_artifact(store: str, tmp_path: Path) -> None:
    inputs = {name: artifact(tmp_path, name) for name in ("dataset", "features", "embedding")}
    with stage_run("toy", VALUES, {}):
        log_datasets(inputs, "toy")
    digest = artifacts.artifact_hash(inputs["dataset"])[:36]
    (run,) = mlflow.search_runs(
        experiment_names=["bifocal"], filter_string=f"dataset.digest = '{digest}'", output_format="list"
    )
    logged = {entry.dataset.name: entry for entry in run.inputs.dataset_inputs}
    assert set(logged) == {"dataset", "features"}
    assert json.loads(logged["dataset"].dataset.profile) == {"images": 7}
    assert json.loads(logged["dataset"].dataset.source)["parameters"] == {"corpus": "Toy"}
    assert [tag.value for tag in logged["dataset"].tags] == ["toy"]


def test_system_metrics_are_an_option_of_the_environment(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING", "1")
    with stage_run("toy", VALUES, {}):
        time.sleep(0.5)
    runs = mlflow.search_runs(experiment_names=["bifocal"], filter_string="tags.stage = 'toy'", output_format="list")
    assert "system/cpu_utilization_percentage" in runs[0].data.metrics
