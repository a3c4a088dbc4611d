"""Tracking against a real MLflow server, which is killed in the middle of the work and comes back."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import mlflow
import pytest

from components import tracking
from components.tracking import runs

VALUES = {"seed": 1, "toy": {"rate": 0.5, "encoder": {"name": "X"}}}


def start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """The server of 'make mlflow', on a free port, answering."""
    arguments = [
        f"--backend-store-uri=sqlite:///{folder}/mlflow.db", f"--artifacts-destination={folder}/files", "--workers=1",
        "--host=127.0.0.1", f"--port={port}", f"--allowed-hosts=127.0.0.1,127.0.0.1:{port}",
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *arguments],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return process
        except (URLError, OSError):
            time.sleep(0.3)
    stop(process)
    raise TimeoutError("the server did not start")


def stop(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    return number


def test_nothing_that_was_logged_while_the_server_was_away_is_lost(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(runs._mailbox, "pause", 0.5)
    server = start(tmp_path, port)
    try:
        with tracking.stage_run("toy", VALUES, {}):
            tracking.log_metrics({"loss": 0.0}, step=0)
            stop(server)
            for step in (1, 2, 3):
                tracking.log_metrics({"loss": float(step), "R@1": 1.0}, step=step)
            server = start(tmp_path, port)
            time.sleep(runs._mailbox.pause)
            tracking.log_metrics({"loss": 4.0}, step=4)
        (run,) = mlflow.search_runs(
            experiment_names=["bifocal"], filter_string="tags.stage = 'toy'", output_format="list"
        )
        assert run.info.status == "FINISHED"
        history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
        assert sorted((metric.step, metric.value) for metric in history) == [(step, step) for step in range(5)]
        assert run.data.params == {"seed": "1", "rate": "0.5", "encoder.name": "X"}
        with tracking.stage_run("toy", VALUES, {}):
            stop(server)
            monkeypatch.setattr(runs, "FLUSH_SECONDS", 1.0)
            tracking.log_metrics({"loss": 5.0})
    finally:
        if server.poll() is None:
            stop(server)
        mlflow.set_tracking_uri(None)
