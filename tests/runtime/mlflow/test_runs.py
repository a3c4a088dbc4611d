"""Runs of stages: requests that wait for the server, and the datasets of runs."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import mlflow
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from runtime import artifacts
from runtime.mlflow import log_datasets, log_metrics, runs, stage_run
from runtime.mlflow.runs import RetryQueue, _is_transient, log_files

DELAY = 10.0


@dataclass
class Server:
    """A server that is up again after 100 simulated seconds."""

    down: bool = False
    received: list[int] = field(default_factory=list)
    attempts: int = 0
    now: float = 0.0

    def receive(self, message: int) -> None:
        self.attempts += 1
        if self.down:
            raise ConnectionError("refused")
        self.received.append(message)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= 100:
            self.down = False


def make_queue(server: Server) -> RetryQueue:
    return RetryQueue(DELAY, clock=lambda: server.now, sleep=server.sleep)


def test_requests_of_an_outage_are_sent_in_order_before_later_ones() -> None:
    server = Server()
    queue = make_queue(server)
    for message in range(10):
        server.down = 2 <= message < 7
        server.now += DELAY
        queue.submit(lambda message=message: server.receive(message))
    assert server.received == list(range(10))


def test_server_that_is_down_is_tried_once_per_retry_delay() -> None:
    server = Server(down=True)
    queue = make_queue(server)
    for message in range(50):
        queue.submit(lambda message=message: server.receive(message))
    assert server.attempts == 1
    assert queue.flush(seconds=200) == 0
    assert server.received == list(range(50))


def test_flush_waits_no_longer_than_its_timeout() -> None:
    server = Server(down=True)
    queue = make_queue(server)
    queue.submit(lambda: server.receive(1))
    assert queue.flush(seconds=30) == 1
    assert server.now == pytest.approx(30)
    assert queue.flush(seconds=30) == 0


def test_permanent_error_is_raised_and_later_requests_are_sent() -> None:
    server = Server()
    queue = make_queue(server)

    def invalid_request() -> None:
        raise ValueError("no such metric")

    with pytest.raises(ValueError, match="no such metric"):
        queue.submit(invalid_request)
    queue.submit(lambda: server.receive(1))
    assert server.received == [1]


@given(st.integers(400, 599))
def test_the_status_decides_whether_a_request_is_repeated(status: int) -> None:
    response = requests.Response()
    response.status_code = status
    error = requests.HTTPError(response=response)
    assert _is_transient(error) == (status in (408, 429) or (status >= 500 and status != 507))


VALUES = {"seed": 1, "toy": {"rate": 0.5}}


@pytest.fixture
def store(mlflow_store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("KFP_RUN_ID", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    mlflow.set_tracking_uri(mlflow_store)
    return mlflow_store


def artifact(folder: Path, name: str) -> Path:
    partial = artifacts.open_partial(folder / name, {})
    (partial / "data.txt").write_text(name)
    manifest = {
        "component": "prepare_dataset",
        "parameters": {"corpus": "Toy"},
        "metrics": {"images": 7},
    }
    artifacts.commit(partial, folder / name, manifest)
    return folder / name


def test_runs_name_their_datasets_by_the_hash_of_the_artifact(store: str, tmp_path: Path) -> None:
    inputs = {name: artifact(tmp_path, name) for name in ("dataset", "features", "embedding")}
    with stage_run("toy", VALUES, {}):
        log_datasets(inputs, "toy")
    digest = artifacts.artifact_hash(inputs["dataset"])[:36]
    (run,) = mlflow.search_runs(
        experiment_names=["bifocal"],
        filter_string=f"dataset.digest = '{digest}'",
        output_format="list",
    )
    logged = {entry.dataset.name: entry for entry in run.inputs.dataset_inputs}
    assert set(logged) == {"dataset", "features"}
    assert json.loads(logged["dataset"].dataset.profile) == {"images": 7}
    assert json.loads(logged["dataset"].dataset.source)["parameters"] == {"corpus": "Toy"}
    assert [tag.value for tag in logged["dataset"].tags] == ["toy"]


def test_system_metrics_are_an_option_of_the_environment(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING", "1")
    with stage_run("toy", VALUES, {}):
        time.sleep(0.5)
    runs = mlflow.search_runs(
        experiment_names=["bifocal"], filter_string="tags.stage = 'toy'", output_format="list"
    )
    assert "system/cpu_utilization_percentage" in runs[0].data.metrics


def test_keys_that_mlflow_refuses_are_logged_under_names_that_it_accepts(store: str) -> None:
    with stage_run(
        "toy", {"seed": 1, "toy": {"factors": {"a*": 1.0}, "k" * 300: 1, "größe": 2}}, {}
    ):
        log_metrics({"acc%": 1.0, "R@1": 2.0})
    found = {"experiment_names": ["bifocal"], "filter_string": "tags.stage = 'toy'"}
    (run, *_) = mlflow.search_runs(**found, output_format="list")
    assert run.data.params == {"seed": "1", "factors.a_": "1.0", "k" * 250: "1", "größe": "2"}
    assert run.data.metrics == {"acc_": 1.0, "R_at_1": 2.0}


@pytest.mark.parametrize("status", [400, 403, 413, 507])
def test_a_file_that_a_proxy_refuses_costs_this_file(
    store: str,
    tmp_path: Path,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("a", "sub/large", "z"):
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_text(name)
    log_artifact = mlflow.MlflowClient.log_artifact

    def refuse(client: mlflow.MlflowClient, run_id: str, path: str, place: str | None) -> None:
        if path.endswith("large"):
            response = requests.Response()
            response.status_code = status
            raise requests.HTTPError(f"{status} Client Error", response=response)
        log_artifact(client, run_id, path, place)

    monkeypatch.setattr(mlflow.MlflowClient, "log_artifact", refuse)
    monkeypatch.setattr(runs, "FLUSH_SECONDS", 0.0)
    with stage_run("toy", VALUES, {}):
        log_files(tmp_path / "files")
        log_metrics({"loss": 1.0})
    assert f"warning: MLflow does not have large: {status}" in capsys.readouterr().err
    (run,) = mlflow.search_runs(
        experiment_names=["bifocal"], filter_string="tags.stage = 'toy'", output_format="list"
    )
    assert run.data.metrics == {"loss": 1.0}
    files = mlflow.MlflowClient().list_artifacts(run.info.run_id)
    assert [file.path for file in files] == ["a", "z"]
