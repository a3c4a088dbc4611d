"""Doctor: each check on a server that answers, on one that does not, and where nothing is set up."""

import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from pipelines import doctor

SERVERS = ("MLFLOW_TRACKING_URI", "KFP_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/health", "/apis/v2beta1/healthz") else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    http.server_close()


@pytest.fixture(autouse=True)
def nothing_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_a_machine_without_servers_is_no_fault() -> None:
    for check in (doctor.s3, doctor.mlflow, doctor.kubeflow):
        found = check()
        assert found.good is None
        assert found.mend


@pytest.mark.parametrize(
    ("check", "variable"), [(doctor.mlflow, "MLFLOW_TRACKING_URI"), (doctor.kubeflow, "KFP_ENDPOINT")]
)
def test_an_endpoint_answers_or_does_not(
    check: Any, variable: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, server)
    assert check().good is True
    for wrong in (f"{server}/elsewhere", "http://127.0.0.1:9", "127.0.0.1:9", "localhost:5000"):
        monkeypatch.setenv(variable, wrong)
        found = check()
        assert found.good is False
        assert wrong in found.said
        assert found.mend


def test_a_port_where_something_else_listens_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("KFP_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        threading.Thread(target=lambda: listening.accept()[0].sendall(b"SSH-2.0-OpenSSH\r\n"), daemon=True).start()
        found = doctor.kubeflow()
    assert found.good is False
    assert "healthz" in found.said


def test_s3_with_and_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*moto.get_host_and_port()))
    assert doctor.s3().good is True
    moto.stop()
    for wrong, said in (("http://127.0.0.1:9", "Could not connect"), ("127.0.0.1:9", "Invalid endpoint")):
        monkeypatch.setenv("AWS_ENDPOINT_URL", wrong)
        found = doctor.s3()
        assert found.good is False
        assert found.said.startswith(said)
        assert wrong in found.said
        assert "AWS_ENDPOINT_URL" in found.mend


def test_packages_and_python_of_another_project_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert doctor.packages().good is True
    assert doctor.python().good is True
    text = (doctor.ROOT / "pyproject.toml").read_text()
    text = text.replace('requires-python = ">=3.11"', 'requires-python = ">=4"').replace(
        '"numpy>=1.26,<3"', '"numpy>=9"'
    )
    (tmp_path / "pyproject.toml").write_text(text.replace('"h5py', '"no-such-package", "h5py'))
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    assert doctor.python().good is False
    found = doctor.packages()
    assert found.good is False
    assert "no-such-package is missing" in found.said
    assert ">=9 is needed" in found.said


def test_a_full_disk_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=int(1e9 * doctor.FREE_GB) - 1))
    assert doctor.disk().good is False
