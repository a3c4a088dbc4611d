"""Faults of servers and of a database while a stage runs."""

import re
import shutil
import sqlite3
import threading
from pathlib import Path

import boto3
import pytest
from broken_s3 import Faults
from mlflow_server import free_port

from runtime.artifacts import artifact_hash
from runtime.s3.storage import Storage
from tests.rehearsals.faults.checkout import digests
from tests.rehearsals.faults.conftest import Cheap
from tests.rehearsals.faults.form import LONG
from tests.rehearsals.faults.rows import Record, record
from tests.rehearsals.faults.stages import link_inputs, only_error, run_stage

STAGE = "vectorize_captions"
RUN = "s3://bucket/run"
GETS = 3
"""Requests that fail one after the other; a client tries each request six times."""


@pytest.fixture
def uploaded(faults: Faults, cheap: Cheap) -> Faults:
    """A bucket with the input of the stage, behind a proxy with faults."""
    Storage().upload(cheap.artifacts / "dataset", f"{RUN}/dataset")
    return faults


def check_uploaded_text(cheap: Cheap, folder: Path) -> None:
    """Check that the bucket has the artifact of an undisturbed run."""
    Storage().download(f"{RUN}/text", folder / "text")
    assert artifact_hash(folder / "text") == artifact_hash(cheap.artifacts / "text")


FAULTS = {
    "503": "S3 answers 503",
    "500": "S3 answers 500",
    "slow": "S3 answers slowly",
    "close": "S3 cuts the body of an answer",
}


@pytest.mark.parametrize(("fault", "name"), FAULTS.items() if LONG else [*FAULTS.items()][:1])
def test_stage_with_a_transient_fault_of_s3(
    fault: str,
    name: str,
    uploaded: Faults,
    cheap: Cheap,
    tmp_path: Path,
    mlflow_store: str,
    record_property: Record,
) -> None:
    uploaded.planned = {"GET": ["ok", *[fault] * GETS], "PUT": [fault] * GETS, "HEAD": [fault]}
    code, output = run_stage(STAGE, cheap.params, RUN)
    assert code == 0, output
    assert not any(uploaded.planned.values()), "not all faults came to pass"
    check_uploaded_text(cheap, tmp_path)
    record(
        record_property,
        name,
        f"`{STAGE}`, {2 * GETS + 1} requests",
        "the same bytes, without a rerun",
    )


def test_stage_with_wrong_bytes_of_s3(
    uploaded: Faults, cheap: Cheap, tmp_path: Path, mlflow_store: str, record_property: Record
) -> None:
    uploaded.planned = {"GET": ["ok", "flip"]}
    code, output = run_stage(STAGE, cheap.params, RUN)
    assert code == 1
    assert re.search(
        r"s3://bucket/run/dataset/\S+ is damaged: its size or SHA-256 differs", only_error(output)
    )
    assert "Contents" not in boto3.client("s3").list_objects_v2(Bucket="bucket", Prefix="run/text")
    assert run_stage(STAGE, cheap.params, RUN)[0] == 0
    check_uploaded_text(cheap, tmp_path)
    outcome = "one error, nothing uploaded; the same bytes after a rerun"
    record(
        record_property, "S3 sends a wrong byte", f"`{STAGE}`", outcome, error=only_error(output)
    )


def test_stage_while_s3_is_away(
    uploaded: Faults, cheap: Cheap, tmp_path: Path, mlflow_store: str, record_property: Record
) -> None:
    uploaded.planned = {"PUT": ["503"] * 99}
    code, output = run_stage(STAGE, cheap.params, RUN)
    assert code == 1
    assert "the next attempt resumes" in only_error(output)
    keys = (
        boto3.client("s3").list_objects_v2(Bucket="bucket", Prefix="run/text").get("Contents", [])
    )
    assert not [entry for entry in keys if entry["Key"].endswith("manifest.json")]
    uploaded.planned = {}
    assert run_stage(STAGE, cheap.params, RUN)[0] == 0
    check_uploaded_text(cheap, tmp_path)
    outcome = "one error, no manifest uploaded; the same bytes after a rerun"
    record(
        record_property,
        "S3 answers 503 to all uploads",
        f"`{STAGE}`",
        outcome,
        error=only_error(output),
    )


def test_stage_while_mlflow_is_away(
    cheap: Cheap,
    tmp_path: Path,
    mlflow_store: str,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    link_inputs(STAGE, cheap.artifacts, tmp_path / "artifacts")
    with monkeypatch.context() as away:
        away.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
        away.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        code, output = run_stage(STAGE, cheap.params, tmp_path / "artifacts")
    assert code == 1
    assert "'python -m pipelines doctor' checks the server" in only_error(output)
    assert not (tmp_path / "artifacts" / "text").exists()
    assert run_stage(STAGE, cheap.params, tmp_path / "artifacts")[0] == 0
    assert digests([tmp_path / "artifacts" / "text"]) == digests([cheap.artifacts / "text"])
    outcome = "one error before any work; the same bytes after a rerun"
    record(record_property, "MLflow away", f"`{STAGE}`", outcome, error=only_error(output))


@pytest.mark.parametrize("seconds", [1.0, None] if LONG else [None])
def test_stage_while_the_database_is_locked(
    seconds: float | None,
    cheap: Cheap,
    tmp_path: Path,
    empty_mlflow_store: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    link_inputs(STAGE, cheap.artifacts, tmp_path / "artifacts")
    store = shutil.copy(empty_mlflow_store, tmp_path / "locked.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    monkeypatch.setenv("MLFLOW_SQLALCHEMYSTORE_CONNECT_ARGS", '{"timeout": 5}')
    lock = sqlite3.connect(store, isolation_level=None, check_same_thread=False)
    lock.execute("BEGIN EXCLUSIVE")
    if seconds is not None:
        threading.Timer(seconds, lock.rollback).start()
    code, output = run_stage(STAGE, cheap.params, tmp_path / "artifacts")
    if seconds is not None:
        assert code == 0, output
        outcome, error = "the stage waits; the same bytes", ""
    else:
        assert code == 1
        outcome, error = "one error; the same bytes after a rerun", only_error(output)
        assert "database is locked" in error
        assert not (tmp_path / "artifacts" / "text").exists()
        lock.rollback()
        assert run_stage(STAGE, cheap.params, tmp_path / "artifacts")[0] == 0
    lock.close()
    assert digests([tmp_path / "artifacts" / "text"]) == digests([cheap.artifacts / "text"])
    name = "database of MLflow locked" + (f" for {seconds:g} s" if seconds is not None else "")
    record(record_property, name, f"`{STAGE}`", outcome, error=error)
