"""The small pipeline as a cluster runs it: a file system per pod, user 12345, a read-only root, retries, kills."""

import json
import os
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import boto3
import pytest

from components.catalog import pipeline_components
from pipelines.local.engine import Pod
from pipelines.local.metadata import State
from pipelines.local.runner import LocalRun
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
    """Kills the first pod of pretrain_sorter for its memory, and deletes one of train_embedding with checkpoints."""

    def __init__(self) -> None:
        self.left = {"pretrain_sorter": "oom", "train_embedding": "deleted"}
        self._s3 = boto3.client("s3")
        self._earlier: set[str] | None = None

    def __call__(self, stage: str, pod: Pod) -> str:
        return self.left.pop(stage, "") if stage != "train_embedding" or self._has_new_checkpoints() else ""

    def _has_new_checkpoints(self) -> bool:
        objects = self._s3.list_objects_v2(Bucket="bucket", Prefix="checkpoints/").get("Contents", [])
        keys = {entry["Key"] for entry in objects if entry["Key"].endswith("index.json")}
        if self._earlier is None:
            self._earlier = keys
        return bool(keys - self._earlier)


def test_the_small_pipeline_is_retried_fails_by_a_lost_pod_and_goes_on(tmp_path: Path, engine: PodEngine) -> None:
    values = deepcopy(SMALL_VALUES)
    values["train_embedding"]["phases"][0]["epochs"] = 8  # or else it may end before it is killed
    # The checkout may have changes, and the last step would refuse a model of uncommitted code before it evaluates it.
    text = compile_text(values, push=False).replace('"allow_dirty":false', '"allow_dirty":true')
    folder = tmp_path / "run"
    engine.kill = Kills()
    first = LocalRun(text, folder, engine, sleep=lambda seconds: None)
    states = first.execute()
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*/log-*.txt")))

    # A pod out of memory is retried: Argo's phase is Failed.
    assert states["pretrain-sorter"] is State.COMPLETE, logs
    assert {path.name for path in (folder / "pretrain-sorter").glob("log-*")} == {"log-0.txt", "log-1.txt"}
    # A deleted pod is not: the phase is Error, and its launcher could not publish a state.
    assert states["train-embedding"] is State.FAILED, logs
    assert {path.name for path in (folder / "train-embedding").glob("log-*")} == {"log-0.txt"}
    (lost,) = (entry for entry in first.driver.metadata.executions(first.run_id) if entry.task == "train-embedding")
    assert (lost.state, lost.artifacts) == (State.RUNNING, {})
    assert states["evaluate"] is states["register-model"] is State.OMITTED
    assert states["notify"] is State.COMPLETE, logs
    assert "; the reason is unknown: " in (folder / "notify" / "log-0.txt").read_text()

    second = LocalRun(text, folder, engine, sleep=lambda seconds: None).execute()
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*/log-*.txt")))
    assert {name for name, state in second.items() if state is State.CACHED} == {
        "prepare-dataset", "extract-features", "vectorize-captions", "pretrain-sorter",
    }, logs  # fmt: skip
    assert all(state.succeeded for state in second.values()), logs
    assert "from s3://bucket/checkpoints/" in (folder / "train-embedding" / "log-0.txt").read_text()
    metrics = json.loads((folder / "evaluate" / "metrics" / "metrics.json").read_text())
    assert metrics["images"] == SMALL_VALUES["prepare_dataset"]["corpus"]["test"]
    registration = json.loads((folder / "register-model" / "registration" / "registration.json").read_text())
    decision = json.loads((folder / "promote" / "promotion" / "decision.json").read_text())
    assert decision["candidate"]["version"] == registration["version"]
    assert not decision["promoted"]
    assert "12 of 12 test images can be compared, 250 are required" in decision["reasons"]
    # A pod starts with only its inputs, at minio/mlpipeline/v2/artifacts/<pipeline>/<run>/<task>/<salt>/<artifact>.
    for stage in pipeline_components():
        assert {path.split("/")[8] for path in engine.files[stage.name]} == {*stage.inputs}
    if engine.isolated:
        assert {path.stat().st_uid for path in folder.glob("objects/**/metrics.json")} == {USER}
