"""Doctor: each check with a server that answers, with one that does not, and with none
configured."""

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
    """The first requests of stages and of runs; ``page`` is the page of a login instead."""

    page = b""

    def do_GET(self) -> None:
        found = self.path.startswith(("/api/2.0/mlflow/experiments/get-by-name", "/apis/v2beta1/"))
        experiment = {"experiment_id": "1", "name": "bifocal", "artifact_location": "s3://b/1"}
        body = self.page or json.dumps({"experiment": experiment} if found else "nothing").encode()
        self.send_response(200 if found or self.page else 404)
        self.send_header("Content-Type", "text/html" if self.page else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


def test_checks_of_services_that_are_not_configured_are_not_failures() -> None:
    for check in (doctor.s3, doctor.mlflow, doctor.kubeflow):
        result = check()
        assert result.ok is None
        assert result.fix


@pytest.mark.parametrize(
    ("check", "variable"),
    [
        (doctor.mlflow, "MLFLOW_TRACKING_URI"),
        # kfp asks a server that does not answer again, for seconds.
        pytest.param(doctor.kubeflow, "KFP_ENDPOINT", marks=pytest.mark.slow),
    ],
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


@pytest.mark.parametrize("page", [b"<html>please log in</html>", b"[]", b'"ok"', b" "])
def test_a_page_with_status_200_is_not_an_answer(
    page: bytes, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Healthy, "page", page)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("KFP_ENDPOINT", server)
    assert doctor.mlflow().ok is False
    assert doctor.kubeflow().ok is False


def test_kubeflow_is_asked_through_the_proxy_of_the_environment(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFP_ENDPOINT", "http://kfp.corp.example")
    monkeypatch.setenv("HTTP_PROXY", server)
    monkeypatch.setenv("http_proxy", server)
    monkeypatch.setattr(
        Healthy, "path", property(lambda self: urlsplit(self.asked).path, _ask), raising=False
    )
    assert doctor.kubeflow().ok is True
    monkeypatch.setenv("NO_PROXY", "corp.example")
    assert doctor.kubeflow().ok is False


def _ask(handler: Healthy, path: str) -> None:
    handler.asked = path  # type: ignore[attr-defined]


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

        def greet() -> None:
            with suppress(OSError):  # the socket is closed
                while True:
                    listening.accept()[0].sendall(b"SSH-2.0-OpenSSH\r\n")

        threading.Thread(target=greet, daemon=True).start()
        result = doctor.kubeflow()
    assert result.ok is False
    assert "no Kubeflow server answers" in result.message


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
