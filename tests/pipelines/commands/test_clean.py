"""``python -m pipelines clean``: a list by default, and a deletion by the policy, in a registry, a
store and on S3."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient

from bifocal.durable import write_json
from pipelines.commands.project import RETENTION
from pipelines.commands.registry import clean
from pipelines.policies import PROMOTION
from runtime.artifacts import artifact_hash, hash_files
from runtime.mlflow.connection import connect
from runtime.mlflow.registry import RELEASE_TAG
from runtime.mlflow.retention import UNNEEDED

POLICY = """
releases: {days: 1, versions: 1}
artifacts: {days: 1, newest: 1}
checkpoints: {days: 1}
"""


def write_artifact(store: Path, name: str, days_old: int) -> Path:
    folder = store / "features" / (name * 32)
    folder.mkdir(parents=True)
    (folder / "table.txt").write_text(name)
    write_json(folder / "manifest.json", {"schema_version": 1, "files": hash_files(folder)})
    moment = (datetime.now(UTC) - timedelta(days=days_old)).timestamp()
    for path in folder.iterdir():
        os.utime(path, (moment, moment))
    return folder


@pytest.fixture
def client(mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    monkeypatch.chdir(tmp_path)  # MLflow writes artifacts beside its database
    return connect()


def test_a_project_on_one_machine_needs_no_s3(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, run = tmp_path / "projects/toys", tmp_path / "runs/kubeflow/toys"
    project.mkdir(parents=True)
    (project / "recipe.yaml").write_text("")
    (project / "retention.yaml").write_text(RETENTION)
    (project / "promotion.yaml").write_text(PROMOTION.read_text().replace("bifocal", "toys", 1))
    old, newest = (write_artifact(run / "extract-features", name, 9) for name in "ab")
    os.utime(newest / "table.txt")
    monkeypatch.setattr("boto3.client", None)
    options = ["--project", "toys", "--delete"]
    done = CliRunner().invoke(clean, options, catch_exceptions=False)
    assert done.exit_code == 0
    assert (old.exists(), newest.exists()) == (False, True)


def test_the_command_lists_and_then_deletes(s3: None, client: MlflowClient, tmp_path: Path) -> None:
    old, newest, trained = (
        write_artifact(tmp_path / "store", name, age)
        for name, age in (("a", 9), ("b", 5), ("c", 9))
    )
    run_id = client.create_run("0").info.run_id
    client.create_registered_model("bifocal")
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    tags = {
        "hash.features": artifact_hash(trained),
        RELEASE_TAG: "now",
        f"{UNNEEDED}before": yesterday,
    }
    client.create_model_version("bifocal", f"runs:/{run_id}/model", run_id, tags=tags)
    for digest in ("now", "before"):
        client.log_text(run_id, digest, f"releases/{digest}/release.json")
    (tmp_path / "policy.yaml").write_text(POLICY)
    overlay = {"claim": "claim", "mount_path": str(tmp_path / "store")}
    write_json(
        tmp_path / "cluster.yaml", {"store": overlay, "checkpoints": "s3://bucket/checkpoints"}
    )
    options = [
        "--policy",
        str(tmp_path / "policy.yaml"),
        "--resources",
        str(tmp_path / "cluster.yaml"),
    ]

    listed = CliRunner().invoke(clean, options, catch_exceptions=False)
    assert listed.exit_code == 0
    assert old.is_dir()
    assert {entry.path for entry in client.list_artifacts(run_id, "releases")} == {
        "releases/now",
        "releases/before",
    }

    CliRunner().invoke(clean, [*options, "--delete"], catch_exceptions=False)
    assert (old.exists(), newest.is_dir(), trained.is_dir()) == (False, True, True)
    assert [entry.path for entry in client.list_artifacts(run_id, "releases")] == ["releases/now"]
