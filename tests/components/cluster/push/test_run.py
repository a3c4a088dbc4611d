"""fetch and record with the real git and DVC, through S3: what one machine recorded, another pulls and need not run."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from components.cluster.fetch.run import run as fetch
from components.cluster.fetch.spec import FetchParams
from components.cluster.push.run import run as record
from components.cluster.push.spec import COMPONENT as RECORD
from components.cluster.push.spec import RecordParams
from runtime import parameters

ROOT = Path(__file__).parents[4]


def call(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def dvc(folder: Path, *arguments: str) -> str:
    return call(folder, sys.executable, "-m", "dvc", *arguments)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This checkout's code in a git repository of its own, with a DVC remote on S3 and one tracked file."""
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
            **{f"GIT_{who}_{what}": "test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="bucket")
        home = tmp_path_factory.mktemp("upstream")
        for folder in ("bifocal", "components", "pipelines"):
            shutil.copytree(ROOT / folder, home / folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "params.yaml", home)
        (home / ".gitignore").write_text("__pycache__/\n")
        call(home, "git", "init", "--quiet")
        dvc(home, "init", "--quiet")
        dvc(home, "remote", "add", "--default", "s3", "s3://bucket/dvc")
        dvc(home, "remote", "modify", "s3", "endpointurl", endpoint)
        (home / "data").mkdir()
        (home / "data" / "words.txt").write_text("dog 0.1 0.2\n")
        dvc(home, "add", "--quiet", "data/words.txt")
        dvc(home, "push", "--quiet")
        call(home, sys.executable, "-m", "pipelines", "render")
        call(home, "git", "add", ".")
        call(home, "git", "commit", "--quiet", "--message", "first")
        shutil.rmtree(home / ".dvc" / "cache")
        yield home
    server.stop()


def head(repository: Path) -> str:
    return call(repository, "git", "rev-parse", "HEAD").strip()


def test_fetch_brings_the_pinned_revision(repository: Path, tmp_path: Path) -> None:
    pinned = head(repository)
    (repository / "data" / "words.txt").write_text("cat 0.3 0.4\n")
    dvc(repository, "add", "--quiet", "data/words.txt")
    dvc(repository, "push", "--quiet")
    call(repository, "git", "commit", "--quiet", "--all", "--message", "second")
    for revision, expected in ((pinned, "dog 0.1 0.2\n"), (head(repository), "cat 0.3 0.4\n")):
        user_files = tmp_path / revision
        user_files.mkdir()
        params = FetchParams(seed=1, paths=["data/words.txt"])
        assert fetch(params, repository=str(repository), revision=revision, user_files=user_files) == {"files": 1}
        assert (user_files / "data" / "words.txt").read_text() == expected


def test_fetch_says_what_is_not_there(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"dvc cannot get data/none at .* of .*: .*data/none.*; is it tracked there"):
        fetch(
            FetchParams(seed=1, paths=["data/none"]),
            repository=str(repository),
            revision=head(repository),
            user_files=tmp_path,
        )


def test_what_was_recorded_is_pulled_elsewhere_and_nothing_runs_again(repository: Path, tmp_path: Path) -> None:
    artifacts = {}
    for name in RECORD.inputs:
        made = tmp_path / "run" / name
        partial = artifacts.open_partial(made, {})
        (partial / "content.bin").write_bytes(name.encode() * 100)
        artifacts.commit(partial, made, {})
        artifacts[name] = made
    values = parameters.merge(parameters.load(ROOT / "params.yaml"), {"seed": 7})
    lock = tmp_path / "lock"
    lock.mkdir()
    record(RecordParams(seed=7, values=values), repository=str(repository), revision="HEAD", lock=lock, **artifacts)

    other = tmp_path / "other"
    call(tmp_path, "git", "clone", "--quiet", str(repository), "other")
    call(other, "git", "apply", str(lock / "lock.patch"))
    dvc(other, "pull", "--quiet")
    for name, made in artifacts.items():
        assert artifacts.hash_files(other / "artifacts" / name) == artifacts.hash_files(made)
    assert json.loads(dvc(other, "status", "--json")) == {}
    before = (other / "dvc.lock").read_text()
    assert "Running stage" not in dvc(other, "repro")
    assert (other / "dvc.lock").read_text() == before
