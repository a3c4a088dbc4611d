"""The checkout of a project, also where git is not installed."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import checkout
from runtime.checkout import ask_git, call, git_answer, project_folder, project_store, tracking_uri
from runtime.mlflow import git_commit

ROOT = Path(__file__).parents[2]


def test_the_folder_and_the_commit_are_those_of_the_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(ROOT / "runtime")
    assert project_folder() == ROOT
    assert git_commit().removesuffix("-dirty") == call("git", "rev-parse", "HEAD").strip()


def test_git_is_asked_once_for_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(checkout, "ask_git", lambda *words, folder: asked.append(words))
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert {project_folder() for _ in range(3)} == {tmp_path}
    assert asked == [("rev-parse", "--show-toplevel")]


def test_files_that_dvc_writes_are_no_changed_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ("code.py", "dvc.lock", "photos.dvc", "artifacts/.gitignore")
    (tmp_path / "artifacts").mkdir()
    for name in files:
        (tmp_path / name).write_text("1")
    git = ("git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b.c")
    call(*git, "init", "--quiet")
    call(*git, "add", "--force", ".")
    call(*git, "commit", "--quiet", "-m", "first")
    monkeypatch.setattr("runtime.mlflow.runs.__file__", str(tmp_path / "runs.py"))
    commit = call(*git, "rev-parse", "HEAD").strip()
    for name in files[1:]:
        (tmp_path / name).write_text("2")
    assert git_commit() == commit
    (tmp_path / "code.py").write_text("2")
    assert git_commit() == f"{commit}-dirty"


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


def test_git_says_why_it_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout._warn.cache_clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "not a git repository" in git_answer("rev-parse", "HEAD")[1]
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for _ in range(2):
        assert ask_git("rev-parse", "HEAD", folder=ROOT) == ""
    assert capsys.readouterr().err.count("safe.directory") == 1
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("")
    monkeypatch.setenv("PATH", str(program.parent))
    assert "git cannot be run (Permission denied)" in git_answer("rev-parse", "HEAD")[1]
    with pytest.raises(ValueError, match="git cannot be run"):
        call("git", "status")
    assert git_commit() == os.environ.get("BIFOCAL_GIT_COMMIT", "unknown")
    program.unlink()
    assert "git is not installed" in git_answer("rev-parse", "HEAD")[1]


def test_the_variables_of_a_hook_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git_answer("rev-parse", "HEAD", folder=ROOT)
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    assert git_answer("rev-parse", "HEAD", folder=ROOT / "runtime") == commit


@pytest.mark.parametrize("mark", [".dvc/config", "params.yaml"])
def test_the_store_of_a_project_in_a_larger_repository_is_beside_its_parameters(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DVC_ROOT", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    project = tmp_path / "teams" / "photos"
    (project / "recipes").mkdir(parents=True)
    call("git", "init", "--quiet", str(tmp_path))
    (project / mark).parent.mkdir(exist_ok=True)
    (project / mark).touch()
    monkeypatch.chdir(project / "recipes")
    assert tracking_uri() == f"sqlite:///{project.resolve()}/mlflow.db"


@given(st.from_regex(r"[a-z.][a-z0-9_ ./-]{0,20}", fullmatch=True), st.booleans())
def test_a_relative_address_is_below_the_project(name: str, database: bool) -> None:
    prefix = "sqlite:///" if database else ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", "/project")
        patch.setenv("MLFLOW_TRACKING_URI", prefix + name)
        assert tracking_uri() == f"{prefix}{Path('/project') / name}"
        patch.setenv("DVC_ROOT", "/100%")
        assert tracking_uri() == f"{prefix}{Path('/100%') / name}"
        for folder in ("/a?b", "/a%20b"):
            patch.setenv("DVC_ROOT", folder)
            with pytest.raises(ValueError, match="has a '\\?' or a code such as %20"):
                tracking_uri()


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:////absolute/mlflow.db?timeout=5",
        "sqlite:///:memory:",
        "http://server:5000",
        "postgresql://user@host/db",
        "databricks",
        "/absolute",
        "file:///absolute",
    ],
)
def test_other_addresses_stay_as_they_are(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", "/a?b")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert tracking_uri() == address
