"""The step monitor: its reference, logs and results are on S3."""

import shutil
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import boto3
import pandas as pd
import pytest

from bifocal.search.index.build import index_of_collection
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX
from components.cluster.monitor import run
from components.cluster.steps import MonitorParams
from pipelines.app.demo import unpack
from pipelines.policies import load_thresholds

FOLDER = "s3://bucket/monitoring"


def test_the_first_run_writes_the_reference_and_the_second_one_compares_with_it(
    s3: None, mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MLflow writes artifacts beside its database
    demo = unpack(tmp_path / "demo")
    shutil.rmtree(demo.directory / INDEX)
    (demo.directory / INDEX).mkdir()
    index_of_collection(demo.collection, None).write(demo.directory / INDEX)
    client = boto3.client("s3")
    client.put_object(
        Bucket="bucket", Key="logs/a.txt", Body="\n".join(demo.collection.captions(1)).encode()
    )
    params = MonitorParams(
        seed=1,
        policy=load_thresholds(),
        folder=FOLDER,
        queries=["s3://bucket/logs"],
        days=7,
    )
    parts = {
        name: demo.directory / path
        for name, path in (("onnx", ONNX), ("collection", COLLECTION), ("index", INDEX))
    }
    for name, expected in (("first", {"references"}), ("second", {"crossed"})):
        (tmp_path / name).mkdir()
        assert expected <= set(run(params, **parts, monitoring=tmp_path / name))
        assert (tmp_path / name / "index.html").is_file()
    day = datetime.now(UTC).date() - timedelta(days=1)
    keys = {
        entry["Key"]
        for entry in client.list_objects_v2(Bucket="bucket", Prefix="monitoring")["Contents"]
    }
    assert {
        "monitoring/reference/reference.json",
        f"monitoring/{day}/monitor.json",
        "monitoring/monitor.prom",
    } <= keys
    # Of another team, with the same encoders and equal names.
    ledger = pd.read_parquet(
        BytesIO(client.get_object(Bucket="bucket", Key="monitoring/images.parquet")["Body"].read())
    )
    theirs = ledger.assign(sha256="0" * 64).to_parquet(index=False)
    client.put_object(Bucket="bucket", Key="monitoring/images.parquet", Body=theirs)
    with pytest.raises(ValueError, match="has the reference of another collection"):
        run(params, **parts, monitoring=tmp_path / "second")
