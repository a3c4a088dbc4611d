"""An upload through MLflow's server may take longer than other requests."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import mlflow
import pytest
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

import runtime.mlflow

SECONDS = 2.0
"""Time that the server needs to store a file, or for any answer."""


@pytest.fixture
def slow_server() -> Iterator[str]:
    class Slow(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            time.sleep(SECONDS)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_slow_store_fails_no_upload(slow_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.mlflow.artifact_requests is not None
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    file = tmp_path / "vectors.npy"
    file.write_bytes(b"vectors")
    address = f"{slow_server}/api/2.0/mlflow-artifacts/artifacts/1/run/artifacts"
    get_artifact_repository(address).log_artifact(str(file))
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"(?i)timed? ?out"):
        mlflow.MlflowClient(slow_server).get_run("a")
    monkeypatch.setenv("MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT", "1")
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"(?i)timed? ?out"):
        get_artifact_repository(address).log_artifact(str(file))
