"""Stages whose artifacts, or whose user's files, are on S3: moto's server over a real socket."""

import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
import yaml

from runtime import artifacts, parameters
from runtime.s3.storage import Storage
from runtime.s3.user_files import download_user_files
from runtime.spec import Component, Params, UserPath

ROOT = Path(__file__).parents[2]


def test_stages_read_and_write_s3(s3: None, tmp_path: Path) -> None:
    values = parameters.merge(
        parameters.load(ROOT / "params.yaml"),
        {"prepare_dataset": {"corpus": {"train": 6, "val": 2, "test": 2, "size": 64}}},
    )
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    for stage in ("prepare_dataset", "vectorize_captions"):
        machine = tmp_path / stage
        machine.mkdir()
        command = [sys.executable, "-m", "components", stage, "--params=../params.yaml", "--artifacts=s3://bucket/run"]
        done = subprocess.run(command, cwd=machine, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for name in ("dataset", "text"):
        Storage().download(f"s3://bucket/run/{name}", tmp_path / name)
    written = artifacts.read_manifest(tmp_path / "text")
    assert written["inputs"] == {"dataset": artifacts.artifact_hash(tmp_path / "dataset")}


class Toy(Params):
    words: UserPath | None
    other: UserPath | None


def test_a_file_of_the_user_may_be_on_s3(s3: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    boto3.client("s3").put_object(Bucket="bucket", Key="words/w2v.bin", Body=b"vectors")
    toy = Component(name="toy", summary="", image="cpu", params=Toy, outputs=())
    section = {"words": "s3://bucket/words/w2v.bin", "other": "data/x"}
    for _ in range(2):
        found = download_user_files({"seed": 1, "toy": section}, toy)["toy"]
        assert Path(found["words"]).read_bytes() == b"vectors"
        assert found["other"] == "data/x"
