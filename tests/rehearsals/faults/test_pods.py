"""The small pipeline as a cluster runs it: a file system per pod, user 12345, a read-only root,
retries, kills.

The short form ends after the training: the steps that read its model are killed until no retry is
left.
"""

import json
import os
import warnings
from collections.abc import Container, Iterator
from copy import deepcopy
from pathlib import Path

import boto3
import pytest

from pipelines.local.runner import LocalRun
from pipelines.local.task import TaskState
from runtime.s3.checkpoints import FOLDER, MINUTES
from tests.pipelines.compiled import SMALL_VALUES, compile_text
from tests.pipelines.local.pods import USER, PodEngine, isolation_skip_reason
from tests.rehearsals.faults.form import LONG
from tests.rehearsals.faults.rows import Record, record

S3_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_DEFAULT_REGION",
)


@pytest.fixture
def engine(mlflow_server: int, s3: None) -> Iterator[PodEngine]:
    if isolation_skip_reason():
        warnings.warn(f"pods share this file system: {isolation_skip_reason()}", stacklevel=1)
    environment = {name: os.environ[name] for name in (*S3_VARIABLES, "BIFOCAL_S3_PATH_STYLE")}
    environment |= {
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{mlflow_server}",
        "OMP_NUM_THREADS": "1",
    }
    environment |= {FOLDER: "s3://bucket/checkpoints", MINUTES: "0.005"}
    engine = PodEngine(environment, isolated=not isolation_skip_reason())
    yield engine
    engine.close()


class Kills:
    """Kills the first pod of pretrain_sorter, one of train_embedding that has checkpoints, and
    ``always`` all pods of some stages.
    """

    def __init__(self, always: Container[str] = ()) -> None:
        self.left = {"pretrain_sorter", "train_embedding"}
        self.always = always
        self._s3 = boto3.client("s3")
        self._earlier: set[str] | None = None

    def __call__(self, stage: str) -> bool:
        if stage in self.always:
            return True
        if stage not in self.left or (
            stage == "train_embedding" and not self._has_new_checkpoints()
        ):
            return False
        self.left.remove(stage)
        return True

    def _has_new_checkpoints(self) -> bool:
        objects = self._s3.list_objects_v2(Bucket="bucket", Prefix="checkpoints/").get(
            "Contents", []
        )
        keys = {entry["Key"] for entry in objects if entry["Key"].endswith("index.json")}
        if self._earlier is None:
            self._earlier = keys
        return bool(keys - self._earlier)


def small_pipeline() -> str:
    values = deepcopy(SMALL_VALUES)
    values["train_embedding"]["phases"][0]["epochs"] = 8  # or else it may end before it is killed
    # The checkout may have changes, and the last step would refuse a model of uncommitted code
    # before it evaluates it.
    return compile_text(values, push=False).replace('"allow_dirty":false', '"allow_dirty":true')


def outputs(folder: Path) -> str:
    return "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*/log-*.txt")))


def test_a_training_goes_on_after_kills_and_a_step_that_is_always_killed_fails_the_run(
    tmp_path: Path, engine: PodEngine, record_property: Record
) -> None:
    engine.kill = Kills(() if LONG else ("evaluate", "export_onnx"))
    states = LocalRun(small_pipeline(), tmp_path, engine, sleep=lambda seconds: None).execute()
    assert states["train-embedding"] is TaskState.COMPLETE, outputs(tmp_path)
    for killed in ("pretrain-sorter", "train-embedding"):
        assert {path.name for path in (tmp_path / killed).glob("log-*")} == {
            "log-0.txt",
            "log-1.txt",
        }
        assert len([*(tmp_path / killed / "attempts").iterdir()]) == 1
    assert (
        "from s3://bucket/checkpoints/" in (tmp_path / "train-embedding" / "log-1.txt").read_text()
    )
    if engine.isolated:
        assert {
            path.stat().st_uid for path in tmp_path.glob("train-embedding/attempts/**/*.json")
        } == {USER}
    if LONG:
        check_outcome(tmp_path, states)
        second = LocalRun(small_pipeline(), tmp_path, engine, sleep=lambda seconds: None).execute()
        assert {name for name, state in second.items() if state is not TaskState.CACHED} == {
            "fingerprint",
            "register-model",
            "release",
            "promote",
            "notify",
        }
        where = "`pretrain_sorter` and `train_embedding` of the flow train"
        record(
            record_property,
            "a pod killed",
            where,
            "its next attempt goes on; a second run takes it from the cache",
        )
        return
    assert states["evaluate"] is states["export-onnx"] is TaskState.FAILED
    assert states["register-model"] is states["promote"] is TaskState.OMITTED
    assert states["notify"] is TaskState.COMPLETE, outputs(tmp_path)
    assert len([*(tmp_path / "evaluate").glob("log-*")]) > 1


def check_outcome(folder: Path, states: dict[str, TaskState]) -> None:
    """Check the metrics, the registered version and the decision of a whole run."""
    assert set(states.values()) == {TaskState.COMPLETE}, outputs(folder)
    metrics = json.loads((folder / "evaluate" / "metrics" / "metrics.json").read_text())
    assert metrics["images"] == SMALL_VALUES["prepare_dataset"]["corpus"]["test"]
    registration = json.loads(
        (folder / "register-model" / "registration" / "registration.json").read_text()
    )
    decision = json.loads((folder / "promote" / "promotion" / "decision.json").read_text())
    assert decision["candidate"]["version"] == registration["version"]
    assert not decision["promoted"]
    assert "12 of 12 test images can be compared, 250 are required" in decision["reasons"]
