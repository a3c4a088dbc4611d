"""The checkout of a project, also where git is not installed."""

import shutil
from pathlib import Path

import pytest

from runtime.checkout import call, project_folder, project_store, tracking_uri
from runtime.mlflow import git_commit

ROOT = Path(__file__).parents[2]


def test_the_folder_and_the_commit_are_those_of_the_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(ROOT / "runtime")
    assert project_folder() == ROOT
    assert git_commit().removesuffix("-dirty") == call("git", "rev-parse", "HEAD").strip()


def test_without_git_the_commit_is_unknown_and_the_database_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("DVC_ROOT", "MLFLOW_TRACKING_URI", "BIFOCAL_GIT_COMMIT"):
        monkeypatch.delenv(name, raising=False)
    assert shutil.which("git") is None
    assert git_commit() == "unknown"
    assert tracking_uri() == project_store() == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("BIFOCAL_GIT_COMMIT", "abc")
    assert git_commit() == "abc"
