"""Notices of a run: the state that the backend gives, and the reasons that Kubeflow's API server
has."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from components.cluster import notify
from runtime.kubeflow.runs import PipelineState, parse_workflow
from runtime.spec import Params

RUN = "bifocal-x.root"
GRAPH = "exit-handler-1"
MESSAGES: list[str] = []
ENDED: list[bool] = []


class Server(BaseHTTPRequestHandler):
    """The web hook, and the API server, which answers with each of ``workflows`` in turn."""

    workflows: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        MESSAGES.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        assert self.path == "/apis/v1beta1/runs/run-1"
        workflow = self.workflows.pop(0) if len(self.workflows) > 1 else self.workflows[0]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(
            json.dumps({"pipeline_runtime": {"workflow_manifest": json.dumps(workflow)}}).encode()
        )

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("BIFOCAL_NOTICE_URL", f"{address}/hook")
    monkeypatch.setenv("KFP_ENDPOINT", address)
    monkeypatch.setenv("KFP_RUN_ID", "run-1")
    monkeypatch.setenv("BIFOCAL_KFP_UI", "https://kubeflow.example")
    monkeypatch.setattr(notify, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(
        notify, "end_pipeline_run", lambda run_id, succeeded: ENDED.append(succeeded)
    )
    MESSAGES.clear()
    ENDED.clear()
    yield
    server.shutdown()
    server.server_close()


def node(
    name: str, kind: str, phase: str, message: str = "", finished: str = "2026-01-01T00:00:00Z"
) -> dict[str, str]:
    display = name.rpartition(".")[2]
    return {
        "name": name,
        "displayName": display,
        "type": kind,
        "phase": phase,
        "message": message,
        "finishedAt": finished,
    }


def workflow(*nodes: dict[str, str], phase: str) -> dict[str, Any]:
    """Return a workflow as Argo keeps it, with the nodes of tasks in the graph of the exit
    handler."""
    inner = [{**entry, "name": f"{RUN}.{GRAPH}.{entry['name']}"} for entry in nodes]
    graph = node(f"{RUN}.{GRAPH}", "DAG", phase, "child 'x' failed")
    return {
        "status": {"nodes": {str(number): entry for number, entry in enumerate([graph, *inner])}}
    }


OOM = "main: OOMKilled (exit code 137): memory: peak 3.98 GiB, limit 4.00 GiB"
"""Argo's reason, with the text that the step left in the termination log."""
RETRIED = (
    node("evaluate", "DAG", "Succeeded"),
    node("evaluate.executor", "Retry", "Succeeded"),
    node("evaluate.executor(0)", "Pod", "Failed", "main: Error (exit code 1)"),
    node("evaluate.executor(1)", "Pod", "Succeeded"),
)
LOST = (
    node("train-embedding", "DAG", "Failed"),
    node("train-embedding.executor", "Retry", "Failed", "No more retries left"),
    node("train-embedding.executor(1)", "Pod", "Failed", OOM, "2026-01-01T02:00:00Z"),
    node(
        "train-embedding.executor(0)",
        "Pod",
        "Failed",
        "main: Error (exit code 1): no GPU",
        "2026-01-01T01:00:00Z",
    ),
)


def send(state: str) -> dict[str, float]:
    # The message of the backend: no error, whatever happened (resolve.go:471-477).
    status = {
        "state": state,
        "error": {},
        "pipelineJobResourceName": "bifocal-x",
        "pipelineTaskName": GRAPH,
    }
    return notify.run(Params(seed=1), status=status)


@pytest.mark.parametrize("state", ["COMPLETE", "CACHED", "SUCCEEDED"])
def test_a_success_sends_no_notice(state: str) -> None:
    assert send(state) == {"notices": 0}
    assert MESSAGES == []
    assert ENDED == [True]


def test_a_notice_names_the_task_the_last_reason_and_the_page() -> None:
    Server.workflows = [workflow(*RETRIED, *LOST, phase="Failed")]
    assert send("FAILED") == {"notices": 1}
    page = "https://kubeflow.example/#/runs/details/run-1"
    advice = "(raise the memory of the step in resources.yaml)"
    assert [f"bifocal-x failed: train-embedding: {OOM} {advice}, {page}"] == MESSAGES
    assert ENDED == [False]


@pytest.mark.parametrize("state", ["FAILED", "RUNNING"])
def test_a_run_that_succeeded_after_a_retry_or_from_the_cache_sends_no_notice(state: str) -> None:
    Server.workflows = [workflow(*RETRIED, phase="Running"), workflow(*RETRIED, phase="Succeeded")]
    assert send(state) == {"notices": 0}
    assert ENDED == [True]


def test_a_failed_driver_is_named() -> None:
    found = parse_workflow(
        workflow(node("fetch-driver", "Pod", "Error", "pod deleted"), phase="Error"), GRAPH
    )
    assert found == PipelineState("Error", {"fetch-driver": "pod deleted"})


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("", "KFP_ENDPOINT is not set"),
        ("http://me:S3cret@127.0.0.1:9", r"http://***@127.0.0.1:9 does not answer"),
    ],
)
def test_without_the_api_server_the_notice_says_so(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, reason: str
) -> None:
    monkeypatch.setenv("KFP_ENDPOINT", endpoint)
    assert send("RUNNING") == {"notices": 1}
    assert MESSAGES[0].startswith("bifocal-x ended as RUNNING; the reason is unknown: ")
    assert reason in MESSAGES[0]
    assert "S3cret" not in MESSAGES[0]


def test_a_graph_that_does_not_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "WAIT_SECONDS", 0.05)
    Server.workflows = [workflow(phase="Running")]
    send("RUNNING")
    assert "its tasks did not end within 0.05 s" in MESSAGES[0]
