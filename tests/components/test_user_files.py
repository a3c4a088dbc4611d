"""Stages with artifacts and user files on S3: moto's server over a real socket."""

from pathlib import Path

import boto3
import pytest
import yaml
from click.testing import CliRunner

from components.__main__ import main
from runtime import artifacts, parameters
from runtime.s3.remote_files import download_user_files
from runtime.s3.storage import Storage
from runtime.spec import Component, Params, UserPath

ROOT = Path(__file__).parents[2]


def test_stages_read_and_write_artifacts_on_s3(
    s3: None, tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"prepare_dataset": {"corpus": {"train": 6, "val": 2, "test": 2, "size": 64}}}
    values = parameters.merge(parameters.load(ROOT / "params.yaml"), changes)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    for stage in ("prepare_dataset", "vectorize_captions"):
        machine = (
            tmp_path / stage
        )  # each stage runs on a machine of its own, without the files of the other
        machine.mkdir()
        monkeypatch.chdir(machine)
        monkeypatch.setenv("BIFOCAL_CACHE", str(machine / "cache"))
        command = [stage, "--params=../params.yaml", "--artifacts=s3://bucket/run"]
        CliRunner().invoke(main, command, catch_exceptions=False, standalone_mode=False)
    for name in ("dataset", "text"):
        Storage().download(f"s3://bucket/run/{name}", tmp_path / name)
    manifest = artifacts.read_manifest(tmp_path / "text")
    assert manifest["inputs"] == {"dataset": artifacts.artifact_hash(tmp_path / "dataset")}


class Toy(Params):
    words: UserPath | None
    other: UserPath | None


def test_user_file_on_s3_is_replaced_by_a_copy(
    s3: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    boto3.client("s3").put_object(Bucket="bucket", Key="words/w2v.bin", Body=b"vectors")
    toy = Component(name="toy", summary="", image="cpu", params=Toy, outputs=())
    section = {"words": "s3://bucket/words/w2v.bin", "other": "data/x"}
    for _ in range(2):
        local = download_user_files({"seed": 1, "toy": section}, toy)["toy"]
        assert Path(local["words"]).read_bytes() == b"vectors"
        assert local["other"] == "data/x"
