"""Doctor: each check with a server that answers, with one that does not, and with none
configured."""

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

SERVERS = (
    "MLFLOW_TRACKING_URI",
    "KFP_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
)


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
def no_services(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_checks_of_services_that_are_not_configured_are_not_failures() -> None:
    for check in (doctor.s3, doctor.mlflow, doctor.kubeflow):
        result = check()
        assert result.ok is None
        assert result.fix


@pytest.mark.parametrize(
    ("check", "variable"),
    [(doctor.mlflow, "MLFLOW_TRACKING_URI"), (doctor.kubeflow, "KFP_ENDPOINT")],
)
def test_endpoint_checks_fail_without_a_healthy_server(
    check: Any, variable: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, server)
    assert check().ok is True
    for wrong in (f"{server}/elsewhere", "http://127.0.0.1:9", "127.0.0.1:9", "localhost:5000"):
        monkeypatch.setenv(variable, wrong)
        result = check()
        assert result.ok is False
        assert wrong in result.message
        assert result.fix


def test_no_check_prints_a_credential(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = (doctor.mlflow, doctor.kubeflow)
    monkeypatch.setattr(doctor, "CHECKS", checks)
    for address, ok in (
        (server.replace("//", "//bifocal:S3cret@"), True),
        ("http://bifocal:S3cret@127.0.0.1:9", False),
        ("postgresql://bifocal:S3cret@127.0.0.1:9/mlflow", None),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.setenv("KFP_ENDPOINT", address)
        results = list(doctor.run_checks())
        assert results[0].ok is ok
        assert "S3cret" not in str(results)


def test_endpoint_check_fails_on_a_port_of_another_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("KFP_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        threading.Thread(
            target=lambda: listening.accept()[0].sendall(b"SSH-2.0-OpenSSH\r\n"), daemon=True
        ).start()
        result = doctor.kubeflow()
    assert result.ok is False
    assert "healthz" in result.message


def test_s3_check_fails_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*moto.get_host_and_port()))
    assert doctor.s3().ok is True
    moto.stop()
    for wrong, message in (
        ("http://127.0.0.1:9", "Could not connect"),
        ("127.0.0.1:9", "Invalid endpoint"),
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL", wrong)
        result = doctor.s3()
        assert result.ok is False
        assert result.message.startswith(message)
        assert wrong in result.message
        assert "AWS_ENDPOINT_URL" in result.fix


def test_packages_and_python_checks_name_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert doctor.packages().ok is True
    assert doctor.python().ok is True
    text = (doctor.ROOT / "pyproject.toml").read_text()
    text = text.replace('requires-python = ">=3.11"', 'requires-python = ">=4"').replace(
        '"numpy>=1.26,<3"', '"numpy>=9"'
    )
    (tmp_path / "pyproject.toml").write_text(text.replace('"h5py', '"no-such-package", "h5py'))
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    assert doctor.python().ok is False
    result = doctor.packages()
    assert result.ok is False
    assert "no-such-package is missing" in result.message
    assert ">=9 is needed" in result.message


def test_disk_check_fails_below_the_free_space(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage._replace(free=int(1e9 * doctor.MIN_FREE_GB) - 1)
    )
    assert doctor.disk().ok is False
