"""The last step: a notice of a run that did not succeed, and the status of its MLflow run."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import mlflow
import pytest

from components.cluster.notify import run
from runtime.mlflow import create_pipeline_run
from runtime.spec import Params

MESSAGES: list[str] = []


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        MESSAGES.append(json.loads(body)["text"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("BIFOCAL_NOTICE_URL", f"http://127.0.0.1:{server.server_address[1]}/")
    MESSAGES.clear()
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("state", "notices", "status"),
    [
        ("COMPLETE", 0, "FINISHED"),
        ("CACHED", 0, "FINISHED"),
        ("FAILED", 1, "FAILED"),
        ("RUNNING", 1, "FAILED"),
    ],
)
def test_mlflow_run_gets_the_state_of_the_whole(
    mlflow_store: str, monkeypatch: pytest.MonkeyPatch, state: str, notices: int, status: str
) -> None:
    monkeypatch.setenv("KFP_RUN_ID", "run-1")
    parent = create_pipeline_run("run-1").run_id
    result = run(
        Params(seed=1), status={"state": state, "pipelineJobResourceName": "bifocal-x", "error": {}}
    )
    assert result == {"notices": notices}
    assert len(MESSAGES) == notices
    assert mlflow.MlflowClient(mlflow_store).get_run(parent).info.status == status


def test_run_succeeds_while_mlflow_is_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KFP_RUN_ID", "run-1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    status = {"state": "COMPLETE", "pipelineJobResourceName": "bifocal-x"}
    assert run(Params(seed=1), status=status) == {"notices": 0}
    assert "MLflow at http://127.0.0.1:9" in capsys.readouterr().err
