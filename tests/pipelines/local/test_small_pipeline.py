"""The small pipeline as a cluster runs it: a file system per pod, user 12345, a read-only root, retries, kills."""

import json
import os
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import boto3
import pytest

from pipelines.local.runner import LocalRun
from pipelines.local.task import State
from runtime.s3.checkpoints import FOLDER, MINUTES
from tests.pipelines.compiled import SMALL_VALUES, compile_text
from tests.pipelines.local.pods import USER, PodEngine, isolation_skip_reason

S3_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")


@pytest.fixture
def engine(mlflow_server: int, s3: None) -> Iterator[PodEngine]:
    if isolation_skip_reason():
        warnings.warn(f"pods share this file system: {isolation_skip_reason()}", stacklevel=1)
    environment = {name: os.environ[name] for name in (*S3_VARIABLES, "BIFOCAL_S3_PATH_STYLE")}
    environment |= {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{mlflow_server}", "OMP_NUM_THREADS": "1"}
    environment |= {FOLDER: "s3://bucket/checkpoints", MINUTES: "0.005"}
    engine = PodEngine(environment, isolated=not isolation_skip_reason())
    yield engine
    engine.close()


class Kills:
    """Kills the first pod of pretrain_sorter, and one of train_embedding that has checkpoints."""

    def __init__(self) -> None:
        self.left = {"pretrain_sorter", "train_embedding"}
        self._s3 = boto3.client("s3")
        self._earlier: set[str] | None = None

    def __call__(self, stage: str) -> bool:
        if stage not in self.left or (stage == "train_embedding" and not self._has_new_checkpoints()):
            return False
        self.left.remove(stage)
        return True

    def _has_new_checkpoints(self) -> bool:
        objects = self._s3.list_objects_v2(Bucket="bucket", Prefix="checkpoints/").get("Contents", [])
        keys = {entry["Key"] for entry in objects if entry["Key"].endswith("index.json")}
        if self._earlier is None:
            self._earlier = keys
        return bool(keys - self._earlier)


def test_the_small_pipeline_goes_on_after_kills_and_takes_its_steps_from_the_cache(
    tmp_path: Path, engine: PodEngine
) -> None:
    values = deepcopy(SMALL_VALUES)
    values["train_embedding"]["phases"][0]["epochs"] = 8  # or else it may end before it is killed
    # The checkout may have changes, and the last step would refuse a model of uncommitted code before it evaluates it.
    text = compile_text(values, push=False).replace('"allow_dirty":false', '"allow_dirty":true')
    folder = tmp_path / "run"
    engine.kill = Kills()
    states = LocalRun(text, folder, engine, sleep=lambda seconds: None).execute()
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*/log-*.txt")))
    assert set(states.values()) == {State.COMPLETE}, logs
    for killed in ("pretrain-sorter", "train-embedding"):
        assert {path.name for path in (folder / killed).glob("log-*")} == {"log-0.txt", "log-1.txt"}
        assert len([*(folder / killed / "attempts").iterdir()]) == 1
    assert "from s3://bucket/checkpoints/" in (folder / "train-embedding" / "log-1.txt").read_text()
    metrics = json.loads((folder / "evaluate" / "metrics" / "metrics.json").read_text())
    assert metrics["images"] == SMALL_VALUES["prepare_dataset"]["corpus"]["test"]
    registration = json.loads((folder / "register-model" / "registration" / "registration.json").read_text())
    decision = json.loads((folder / "promote" / "promotion" / "decision.json").read_text())
    assert decision["candidate"]["version"] == registration["version"]
    assert not decision["promoted"]
    assert "12 of 12 test images can be compared, 250 are required" in decision["reasons"]
    if engine.isolated:
        assert {path.stat().st_uid for path in folder.glob("evaluate/attempts/**/metrics.json")} == {USER}

    second = LocalRun(text, folder, engine, sleep=lambda seconds: None).execute()
    assert {name for name, state in second.items() if state is not State.CACHED} == {
        "fingerprint", "register-model", "release", "promote", "notify",
    }  # fmt: skip
