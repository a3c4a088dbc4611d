"""Steps fingerprint, fetch and push with real git and DVC through S3: another machine pulls and
reruns nothing."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import boto3
import pytest
from dvc.cli import main as dvc_main
from dvc.repo import Repo
from moto.server import ThreadedMotoServer

from components.catalog import pipeline_components
from components.cluster.fetch import run as fetch
from components.cluster.fingerprint import run as fingerprint
from components.cluster.push import DVC_FILES, _push_branch
from components.cluster.push import run as push
from components.cluster.steps import FetchParams, FingerprintParams, PushParams
from runtime import artifacts, parameters

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def call(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def dvc(folder: Path, *arguments: str) -> None:
    """Run DVC in this process, which saves its import."""
    with chdir(folder):
        assert dvc_main(list(arguments)) == 0


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A git repository with the code of this checkout, a DVC remote on S3 and one tracked file."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "DVC_NO_ANALYTICS": "1",
            **{
                f"GIT_{who}_{what}": "test"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="bucket")
        home = tmp_path_factory.mktemp("upstream")
        for folder in ("bifocal", "runtime", "components", "pipelines"):
            shutil.copytree(
                ROOT / folder, home / folder, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(ROOT / "params.yaml", home)
        (home / ".gitignore").write_text("__pycache__/\n")
        call(home, "git", "init", "--quiet")
        dvc(home, "init", "--quiet")
        shutil.copy(ROOT / ".dvcignore", home)
        dvc(home, "remote", "add", "--default", "s3", "s3://bucket/dvc")
        dvc(home, "remote", "modify", "s3", "endpointurl", endpoint)
        (home / "data").mkdir()
        (home / "data" / "words.txt").write_text("dog 0.1 0.2\n")
        dvc(home, "add", "--quiet", "data/words.txt")
        dvc(home, "push", "--quiet")
        call(home, sys.executable, "-m", "pipelines", "render", "--dvc-only")
        call(home, "git", "add", ".")
        call(home, "git", "commit", "--quiet", "--message", "first")
        shutil.rmtree(home / ".dvc" / "cache")
        yield home
    server.stop()


def head(repository: Path) -> str:
    return call(repository, "git", "rev-parse", "HEAD").strip()


def versions(repository: Path, revision: str, *paths: str) -> str:
    params = FingerprintParams(seed=1, sources={"prepare_dataset": [*paths]})
    texts = fingerprint(params, repository=str(repository), revision=revision)
    assert texts["sources"] == len(paths)
    return str(texts["prepare_dataset"])


def test_fetch_copies_the_files_of_the_revision(repository: Path, tmp_path: Path) -> None:
    pinned = head(repository)
    (repository / "data" / "words.txt").write_text("cat 0.3 0.4\n")
    dvc(repository, "add", "--quiet", "data/words.txt")
    dvc(repository, "push", "--quiet")
    call(repository, "git", "commit", "--quiet", "--all", "--message", "second")
    for revision, expected in ((pinned, "dog 0.1 0.2\n"), (head(repository), "cat 0.3 0.4\n")):
        user_files = tmp_path / revision
        user_files.mkdir()
        params = FetchParams(seed=1, paths=["data/words.txt"])
        commits = versions(repository, revision, "data/words.txt")
        assert fetch(
            params, repository=str(repository), versions=commits, user_files=user_files
        ) == {"files": 1}
        assert (user_files / "data" / "words.txt").read_text() == expected


def test_version_of_a_path_changes_with_the_path_alone(repository: Path, tmp_path: Path) -> None:
    before = versions(repository, head(repository), "data/words.txt", "data")
    (repository / "README.md").write_text("A commit that changes no data.\n")
    call(repository, "git", "add", "README.md")
    call(repository, "git", "commit", "--quiet", "--message", "third")
    branch = call(repository, "git", "branch", "--show-current").strip()
    assert versions(repository, branch, "data/words.txt", "data") == before
    # A folder that DVC tracks as a whole: its .dvc file changes, not a file below the path.
    (repository / "corpora.dvc").write_text("outs: []\n")
    call(repository, "git", "add", "corpora.dvc")
    call(repository, "git", "commit", "--quiet", "--message", "fourth")
    assert json.loads(versions(repository, "HEAD", "corpora/flickr8k")) == {
        "corpora/flickr8k": head(repository)
    }
    assert versions(repository, "HEAD", "data/words.txt", "data") == before


def test_unknown_revision_is_an_error(repository: Path) -> None:
    with pytest.raises(ValueError, match="has no commit or branch 'nightly': is it pushed"):
        versions(repository, "nightly", "data/words.txt")


def test_fetch_of_an_untracked_path_is_an_error(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"dvc cannot get data/none at .* of .*: .*data/none.*; is it tracked there",
    ):
        fetch(
            FetchParams(seed=1, paths=["data/none"]),
            repository=str(repository),
            versions=versions(repository, head(repository), "data/none"),
            user_files=tmp_path,
        )


def test_pushed_artifacts_are_pulled_elsewhere_and_no_stage_runs_again(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = {}
    values = parameters.merge(parameters.load(ROOT / "params.yaml"), {"seed": 7})
    stages = pipeline_components(values=values)
    for name in [output for stage in stages for output in stage.outputs]:
        path = tmp_path / "run" / name
        partial = artifacts.open_partial(path, {})
        (partial / "content.bin").write_bytes(name.encode() * 100)
        artifacts.commit(partial, path, {})
        outputs[name] = path
    dvc_lock = tmp_path / "dvc_lock"
    params = PushParams(seed=7, values=values)
    monkeypatch.setenv("KFP_RUN_ID", "run-1")
    dvc_lock.mkdir()
    push(params, repository=str(repository), revision="HEAD", dvc_lock=dvc_lock, **outputs)

    other = tmp_path / "other"
    call(tmp_path, "git", "clone", "--quiet", "--branch", "runs/run-1", str(repository), "other")
    assert call(other, "git", "rev-parse", "HEAD~1").strip() == head(repository)
    assert (other / "dvc.lock").read_text() == (dvc_lock / "dvc.lock").read_text()
    dvc(other, "pull", "--quiet")
    for name, path in outputs.items():
        if name != "registration":  # git has its JSON file
            assert artifacts.hash_files(other / "artifacts" / name) == artifacts.hash_files(path)
    before = (other / "dvc.lock").read_text()
    with chdir(other), Repo() as repo:
        assert repo.status() == {"packages": ["always changed"]}
        assert [stage.name for stage in repo.reproduce()] == ["packages"]
        repo.gc(all_branches=True, cloud=True, force=True)
    assert (other / "dvc.lock").read_text() == before
    shutil.rmtree(other / ".dvc" / "cache")
    shutil.rmtree(other / "artifacts")
    dvc(other, "pull", "--quiet")


def test_a_repository_that_refuses_the_branch_is_an_error_and_a_retry_replaces_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = repository / ".git" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho read only\nexit 1\n")
    hook.chmod(0o755)
    (tmp_path / "clone").mkdir()
    call(tmp_path, "git", "clone", "--quiet", str(repository), "clone")
    for name in DVC_FILES:
        (tmp_path / "clone" / name).write_text("changed: 1\n")
    monkeypatch.setenv("KFP_RUN_ID", "run-2")
    with pytest.raises(
        ValueError, match=r"(?s)read only.*no branch names them: allow the credentials .* runs/\*"
    ):
        _push_branch(tmp_path / "clone", "HEAD")
    hook.unlink()
    for number in (2, 3):
        (tmp_path / "clone" / "params.yaml").write_text(f"changed: {number}\n")
        _push_branch(tmp_path / "clone", "HEAD")
        assert call(repository, "git", "show", "runs/run-2:params.yaml") == f"changed: {number}\n"
