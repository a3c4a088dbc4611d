"""The program of the Job that prepares the bucket, with moto's S3."""

import runpy
from pathlib import Path

import boto3
import pytest

PROGRAM = Path(__file__).parents[2] / "deploy" / "base" / "pipelines" / "bucket.py"


@pytest.fixture
def environment(moto: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{moto}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }.items():
        monkeypatch.setenv(name, value)


def prepare(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKET", bucket)
    runpy.run_path(str(PROGRAM), run_name="__main__")


@pytest.mark.usefixtures("environment")
def test_the_bucket_gets_its_rules_and_keeps_those_of_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare("prepared", monkeypatch)
    client = boto3.client("s3")
    rules = client.get_bucket_lifecycle_configuration(Bucket="prepared")["Rules"]
    other = {
        "ID": "logs",
        "Status": "Enabled",
        "Filter": {"Prefix": "logs/"},
        "Expiration": {"Days": 9},
    }
    client.put_bucket_lifecycle_configuration(
        Bucket="prepared", LifecycleConfiguration={"Rules": [*rules, other]}
    )
    prepare("prepared", monkeypatch)
    first = ["created s3://prepared", "s3://prepared: 3 rules set, 0 kept"]
    assert capsys.readouterr().out.splitlines() == [*first, "s3://prepared: 3 rules set, 1 kept"]
    found = client.get_bucket_lifecycle_configuration(Bucket="prepared")["Rules"]
    assert {rule["ID"] for rule in found} == {rule["ID"] for rule in [*rules, other]}


@pytest.mark.usefixtures("environment")
def test_an_error_of_s3_fails_the_job_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(SystemExit, match=r"^error: s3://prepared: Could not connect [^\n]*$"):
        prepare("prepared", monkeypatch)
