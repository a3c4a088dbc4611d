"""Experiments of a real DVC project: their MLflow runs and files survive the temporary folder they run in."""

import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from urllib.parse import urlparse

import mlflow
import pytest
import yaml
from dvc.repo import Repo

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


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, empty_mlflow_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed DVC project with one tracked stage."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "test")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "test")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mlflow.db").write_bytes(empty_mlflow_store.read_bytes())
    (folder / ".gitignore").write_text("/mlflow.db\n/mlruns/\n/files/\n")
    (folder / "params.yaml").write_text("rate: 1\n")
    (folder / "stage.py").write_text(STAGE)
    command = f"{sys.executable} stage.py {ROOT}"
    stage = {"cmd": command, "deps": ["stage.py"], "params": ["rate"], "outs": ["result.txt"]}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"toy": stage}}))
    git(folder, "init", "--quiet")
    with chdir(folder):
        Repo.init().close()
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def test_runs_of_an_experiment_in_a_temporary_folder_are_kept(project: Path) -> None:
    with chdir(project), Repo() as repo:
        repo.experiments.run(params=["rate=7"], tmp_dir=True)
    assert not list((project / ".dvc" / "tmp" / "exps").glob("*/stage.py")), "DVC deletes the folder"
    client = mlflow.MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiment = client.get_experiment_by_name("bifocal")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.stage = 'toy'")
    assert run.data.params["rate"] == "rate: 7\n"
    logged = Path(urlparse(run.info.artifact_uri).path) / "rate.txt"
    assert logged.is_relative_to(project / "mlruns")
    assert logged.read_text() == "rate: 7\n"
