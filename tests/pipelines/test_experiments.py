"""Experiments of a real DVC project: their MLflow runs and files survive the temporary folder they
run in."""

import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import mlflow
import pytest
import yaml
from dvc.repo import Repo

from examples.optuna_search import search

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
STAGE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from runtime.mlflow import log_files, stage_run
rate = pathlib.Path("params.yaml").read_text()
pathlib.Path("files").mkdir(exist_ok=True)
pathlib.Path("files/rate.txt").write_text(rate)
with stage_run("toy", {"seed": 1, "toy": {"rate": rate}}, {}):
    log_files(pathlib.Path("files"))
pathlib.Path("result.txt").write_text(rate)
"""
SCORE = """
import json, pathlib, yaml
rate = yaml.safe_load(pathlib.Path("params.yaml").read_text())["phases"][0]["rate"]
pathlib.Path("artifacts/metrics").mkdir(parents=True, exist_ok=True)
pathlib.Path("artifacts/metrics/summary.json").write_text(json.dumps({"score": -(rate - 3.0) ** 2}))
"""


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a project, and a git identity."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "test")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "test")
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def commit_project(
    folder: Path, program: str, stage: dict[str, Any], ignored: str = "", **document: Any
) -> None:
    """Commit a DVC project with one stage that runs ``program``."""
    (folder / "stage.py").write_text(program)
    stage |= {"cmd": f"{sys.executable} stage.py {ROOT}", "deps": ["stage.py"]}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"toy": stage}, **document}))
    (folder / ".gitignore").write_text(ignored)
    git(folder, "init", "--quiet")
    with chdir(folder):
        Repo.init().close()
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")


def test_runs_of_an_experiment_in_a_temporary_folder_are_kept(
    project: Path, empty_mlflow_store: Path
) -> None:
    (project / "mlflow.db").write_bytes(empty_mlflow_store.read_bytes())
    (project / "params.yaml").write_text("rate: 1\n")
    stage = {"params": ["rate"], "outs": ["result.txt"]}
    commit_project(project, STAGE, stage, "/mlflow.db\n/mlruns/\n/files/\n")
    with chdir(project), Repo() as repo:
        repo.experiments.run(params=["rate=7"], tmp_dir=True)
    assert not list((project / ".dvc" / "tmp" / "exps").glob("*/stage.py")), (
        "DVC deletes the folder"
    )
    client = mlflow.MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiment = client.get_experiment_by_name("bifocal")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.stage = 'toy'")
    assert run.data.params["rate"] == "rate: 7\n"
    logged = Path(urlparse(run.info.artifact_uri).path) / "rate.txt"
    assert logged.is_relative_to(project / "mlruns")
    assert logged.read_text() == "rate: 7\n"


def test_trials_of_a_search_are_experiments(project: Path) -> None:
    (project / "params.yaml").write_text("phases: [{rate: 1.0}]\n")
    metrics = {"metrics": ["artifacts/metrics/summary.json"]}
    commit_project(project, SCORE, {"params": ["phases"], "outs": ["artifacts/metrics"]}, **metrics)
    with chdir(project):
        with Repo() as repo:
            repo.reproduce()
        git(project, "add", ".")
        git(project, "commit", "--quiet", "--message", "baseline")
        space = {"phases.0.rate": lambda trial, name: trial.suggest_float(name, 2.0, 4.0)}
        study = search(space, "score", trials=2, name="tune")
        with Repo() as repo:
            (experiments,) = repo.experiments.ls().values()
        assert sorted(name for name, _ in experiments) == ["tune-0", "tune-1"]
    for trial in study.trials:
        assert trial.value == pytest.approx(-((trial.params["phases.0.rate"] - 3.0) ** 2))
    assert (project / "params.yaml").read_text() == "phases: [{rate: 1.0}]\n", (
        "the working directory is unchanged"
    )
