"""A random password in every setting that can hold one: no failure shows it, in no error, log line,
probe or page."""

import logging
import os
import re
import secrets
import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from urllib.parse import quote

import click
import pytest
from botocore.retries.standard import ExponentialBackoff
from starlette.testclient import TestClient

from bifocal.backbones.hub import download
from bifocal.serving.service.app import create_app
from bifocal.serving.service.observation import JSONFormatter, TextFormatter
from bifocal.serving.service.settings import Settings, read_keys
from pipelines import doctor
from pipelines.app.serve_sources import ReleaseSource
from pipelines.kubeflow.client import kfp_client
from runtime.checkout import call
from runtime.kubeflow.runs import run_state
from runtime.mlflow.connection import connect, mlflow_errors_as_oserror
from runtime.notices import send_notice
from runtime.process import run
from runtime.redaction import redact
from runtime.s3.checkpoints import RemoteCheckpoints
from runtime.s3.storage import Storage

ROOT = Path(__file__).parents[2]
AWAY = "127.0.0.1:9"
SECRETS = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "BIFOCAL_ADMIN_KEY",
    "BIFOCAL_API_KEYS",
    "BIFOCAL_GIT_PASSWORD",
    "BIFOCAL_NOTICE_URL",
    "HF_TOKEN",
    "KFP_COOKIES",
    "KFP_TOKEN",
    "MLFLOW_AUTH_ADMIN_PASSWORD",
    "MLFLOW_FLASK_SERVER_SECRET_KEY",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY",
    "PGPASSWORD",
    "POSTGRES_PASSWORD",
)
ADDRESSES = (
    "AWS_ENDPOINT_URL",
    "BIFOCAL_MLFLOW_UI",
    "HF_ENDPOINT",
    "KFP_ENDPOINT",
    "MLFLOW_BACKEND_STORE_URI",
    "MLFLOW_S3_ENDPOINT_URL",
    "MLFLOW_TRACKING_URI",
)
HARMLESS = {
    "AWS_ACCESS_KEY_ID",
    "AWS_SHARED_CREDENTIALS_FILE",
    "GIT_CONFIG_KEY_0",
    "KFP_TOKEN_FILE",
    "KFP_URL_TAG",
    "KF_PIPELINES_SA_TOKEN_PATH",
    "MLFLOW_AUTH_ADMIN_USERNAME",
    "MLFLOW_AUTH_CONFIG_PATH",
    "MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD",
    "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT",
    "MLFLOW_TRACKING_AUTH",
}
"""Variables that name a file, a user or a switch."""
FOLDERS = ("bifocal", "runtime", "components", "pipelines", "deploy", "docs", "containers")
VARIABLE = re.compile(r"\b(?:AWS|BIFOCAL|GIT|HF|KFP?|MLFLOW|PG|POSTGRES)_?[A-Z0-9_]+\b")
MAY_BE_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|COOKIE|CREDENTIAL|AUTH|UR[IL]|ENDPOINT|PROXY")


def test_every_setting_that_can_hold_a_secret_is_known() -> None:
    """A new variable belongs in one of the lists above, and so into the test below."""
    files = subprocess.run(
        ["git", "grep", "-lI", "_", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in files.stdout.splitlines()]
    found = {
        name for text in texts for name in VARIABLE.findall(text) if MAY_BE_SECRET.search(name)
    }
    assert found - {*SECRETS, *ADDRESSES, *HARMLESS} == set()


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    """A password with characters that URLs, JSON and reprs spell otherwise, in every setting; no
    server answers."""
    password = f"{secrets.token_hex(4)}'\"\\/@ ü{secrets.token_hex(4)}"
    for name in SECRETS:
        monkeypatch.setenv(name, f"session={password}" if name == "KFP_COOKIES" else password)
    for name in ADDRESSES:
        monkeypatch.setenv(name, f"http://user:{quote(password, safe='')}@{AWAY}")
    for name, value in (
        ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0"),
        ("AWS_ACCESS_KEY_ID", "me"),
        ("AWS_REGION", "eu-1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: 0.0)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", os.environ["HF_ENDPOINT"])
    return password


def ask_mlflow(folder: Path) -> None:
    with mlflow_errors_as_oserror():
        connect().search_experiments()


def ask_s3(folder: Path) -> None:
    Storage(attempts=1, timeout=5).exists("s3://bucket/key")


def copy_checkpoints(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "last").write_text("1")
    RemoteCheckpoints("s3://bucket/run", {"model": folder / "model"}, 0)(is_last=True)
    raise OSError("copied")


def ask_kubeflow(folder: Path) -> None:
    with kfp_client() as client:
        client.list_experiments()


def ask_for_a_run(folder: Path) -> None:
    run_state("run", "graph")


def notify(folder: Path) -> None:
    send_notice(f"failed: {os.environ['MLFLOW_TRACKING_URI']}")


def clone(folder: Path) -> None:
    call(
        "git",
        "clone",
        "--quiet",
        f"{os.environ['MLFLOW_TRACKING_URI']}/repository",
        str(folder / "clone"),
    )


def download_weights(folder: Path) -> None:
    download("owner/name", ["config.json"])


def check_servers(folder: Path) -> None:
    results = [check() for check in (doctor.s3, doctor.mlflow, doctor.kubeflow)]
    raise OSError(" ".join(f"{result.message} {result.fix}" for result in results))


def fail_unexpectedly(folder: Path) -> None:
    raise RuntimeError(dict(os.environ))


@pytest.mark.parametrize(
    "failure",
    [
        ask_mlflow,
        ask_s3,
        copy_checkpoints,
        ask_kubeflow,
        ask_for_a_run,
        notify,
        clone,
        download_weights,
        check_servers,
        fail_unexpectedly,
    ],
)
def test_no_failure_of_a_command_shows_the_password(
    failure: Callable[[Path], None], secret: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = click.Command("fail", callback=lambda: failure(tmp_path))
    with pytest.MonkeyPatch.context() as arguments:
        arguments.setattr("sys.argv", ["fail"])
        with pytest.raises(SystemExit) as end:
            run(command, "fail")
    assert end.value.code == 1
    output = "".join(capfd.readouterr())
    assert output
    check_hidden(output, secret)


@pytest.mark.parametrize("formatter", [JSONFormatter, TextFormatter])
def test_no_probe_page_or_log_line_of_the_service_shows_the_password(
    formatter: Callable[[Callable[[str], str]], logging.Formatter], secret: str
) -> None:
    log = StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(formatter(redact))
    logging.getLogger().addHandler(handler)
    keys, admin = read_keys(os.environ)
    app = create_app(
        ReleaseSource("models:/bifocal@champion", None), Settings(api_keys=keys, admin_key=admin)
    )
    try:
        with TestClient(app, base_url="http://localhost") as service:
            paths = (
                "/",
                "/page/page.js",
                "/healthz",
                "/readyz",
                "/metrics",
                "/v2",
                "/v2/health/ready",
                "/api/v1/info",
            )
            answers = [service.get(path) for path in paths]
            answers.append(service.post("/api/v1/search", json={"text": "a dog"}))
    finally:
        logging.getLogger().removeHandler(handler)
    assert "model or index not loaded" in log.getvalue()
    for answer in answers:
        check_hidden(f"{answer.text} {answer.headers}", secret)
    check_hidden(log.getvalue(), secret)


def check_hidden(text: str, secret: str) -> None:
    """Check that no half of the password is in a text: its halves have the same spelling
    everywhere."""
    for part in (secret[:8], secret[-8:]):
        assert part not in text, text
