"""Secrets of the overlays: the keys that steps and services read, and no values in the
repository."""

import base64
import json
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pipelines.kubeflow import resources
from tests.deploy.documents import OVERLAYS, Render, containers, find

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("overlay", ["standalone", "multi-user"])
def test_secrets_have_the_keys_that_the_steps_read(overlay: str, render: Render) -> None:
    documents = render(f"overlays/{overlay}")
    for name, keys in resources.load().secrets.items():
        assert set(find(documents, "Secret", name)["data"]) == set(keys), name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_secret_of_a_container_is_in_the_overlay(overlay: str, render: Render) -> None:
    documents = render(f"overlays/{overlay}")
    secrets = {
        entry["metadata"]["name"]: entry["data"] for entry in documents if entry["kind"] == "Secret"
    }
    for container in containers(documents):
        for variable in container.get("env", []):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                assert reference["key"] in secrets[reference["name"]] or reference.get("optional")


def test_examples_of_secrets_have_no_values_and_the_secrets_are_ignored() -> None:
    examples = sorted(ROOT.glob("deploy/overlays/*/secrets/*.env.example"))
    assert examples
    for example in examples:
        lines = [line for line in example.read_text().splitlines() if not line.startswith("#")]
        assert all(line.endswith("=") for line in lines), example
        path = example.with_suffix("").relative_to(ROOT)
        ignored = subprocess.run(
            ["git", "check-ignore", "--quiet", str(path)], cwd=ROOT, check=False
        )
        assert ignored.returncode == 0, path


def test_no_password_is_in_an_address_or_a_command(render: Render) -> None:
    for container in containers(render("overlays/mlflow")):
        assert not re.search(r"//[^/@\s]+:[^/@\s]+@", json.dumps(container))


@pytest.mark.parametrize("overlay", ["search", "kserve"])
def test_the_secret_of_a_replica_may_have_the_key_that_deletes(
    overlay: str, render: Render
) -> None:
    documents = render(f"overlays/{overlay}")
    variables = [entry for container in containers(documents) for entry in container.get("env", [])]
    (reference,) = (
        entry["valueFrom"]["secretKeyRef"]
        for entry in variables
        if entry["name"] == "BIFOCAL_ADMIN_KEY"
    )
    assert reference == {"name": "search", "key": "admin_key", "optional": True}
    # The service refuses an empty key, so the example has no line for it.
    assert "admin_key" not in find(documents, "Secret", "search")["data"]


@pytest.fixture
def overlays(tmp_path: Path) -> Path:
    """Overlays without secrets, below a copy of the folder deploy."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("*.env"))
    return tmp_path / "deploy" / "overlays"


def run_script(overlays: Path, *command: str) -> str:
    script = [str(overlays.parent / command[0]), *command[1:]]
    return subprocess.run(script, check=True, capture_output=True, text=True).stdout


def values_of(overlays: Path, overlay: str, name: str) -> dict[str, str]:
    lines = (overlays / overlay / "secrets" / f"{name}.env").read_text().splitlines()
    return dict(line.split("=") for line in lines if not line.startswith("#"))


def test_one_command_writes_the_secrets_and_names_what_is_left(overlays: Path) -> None:
    output = run_script(overlays, "secrets.sh", "mlflow", "standalone", "search")
    files = sorted(overlays.glob("*/secrets/*.env"))
    assert len(files) == 9
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    auth, database = (
        values_of(overlays, "mlflow", "mlflow-auth"),
        values_of(overlays, "mlflow", "mlflow-database"),
    )
    pipeline, search = (
        values_of(overlays, "standalone", "bifocal-mlflow"),
        values_of(overlays, "search", "search"),
    )
    made = [
        *auth.values(),
        *database.values(),
        pipeline["password"],
        search["mlflow_password"],
        search["api_keys"],
    ]
    assert all(len(value) >= 40 for value in made)
    assert len(set(made)) == len(made)
    assert not any(value in output for value in made)
    assert (pipeline["username"], search["mlflow_username"]) == ("pipeline-standalone", "search")
    assert values_of(overlays, "standalone", "bifocal-service")["api_keys"] == search["api_keys"]
    assert (
        "standalone/secrets/bifocal-s3.env; fill in access_key secret_key endpoint region" in output
    )
    before = [file.read_text() for file in files]
    assert run_script(overlays, "secrets.sh", "mlflow", "standalone", "search").count("kept") == 9
    assert [file.read_text() for file in files] == before


def test_accounts_have_the_passwords_of_the_secrets(overlays: Path) -> None:
    """The server records: MLflow's accounts need packages that only the image tracking has."""
    requests: list[tuple[str, str, dict[str, str]]] = []
    changed: set[str] = set()

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # with the login of the account itself
            login = base64.b64decode(self.headers["Authorization"].split()[1]).decode()
            known = {f"{body['username']}:{body['password']}" for *_, body in requests}
            self.send_response(404 if login in known - changed else 401)
            self.end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            exists = any(body["username"] == found["username"] for *_, found in requests)
            requests.append((self.path, self.headers["Authorization"], body))
            self.send_response(400 if exists else 200)
            self.end_headers()
            self.wfile.write(
                b'{"error_code": "RESOURCE_ALREADY_EXISTS"}' if exists else b'{"user": {}}'
            )

        def log_message(self, *_: object) -> None:
            pass

    run_script(overlays, "secrets.sh", "mlflow", "standalone", "search")
    with HTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = (
            "accounts.sh",
            f"http://127.0.0.1:{server.server_port}",
            "mlflow",
            "standalone",
            "search",
        )
        outputs = [run_script(overlays, *command).split() for _ in range(2)]
        body = requests[0][2]
        changed.add(f"{body['username']}:{body['password']}")  # the account has another password
        refused = subprocess.run(
            [str(overlays.parent / command[0]), *command[1:]], capture_output=True, text=True
        )
        server.shutdown()
    assert refused.returncode == 1
    assert "pipeline-standalone: the account exists with another password" in refused.stderr
    assert outputs == [
        ["created", "pipeline-standalone", "created", "search"],
        ["kept", "pipeline-standalone", "kept", "search"],
    ]
    admin = values_of(overlays, "mlflow", "mlflow-auth")["admin_password"]
    account = base64.b64encode(f"admin:{admin}".encode()).decode()
    assert {(path, header) for path, header, _ in requests} == {
        ("/api/2.0/mlflow/users/create", f"Basic {account}")
    }
    passwords = {body["username"]: body["password"] for *_, body in requests}
    pipeline = values_of(overlays, "standalone", "bifocal-mlflow")
    assert passwords["pipeline-standalone"] == pipeline["password"]
    assert passwords["search"] == values_of(overlays, "search", "search")["mlflow_password"]


def test_keys_of_other_overlays_are_not_taken_and_missing_secrets_are_one_sentence(
    overlays: Path,
) -> None:
    (overlays / "kind" / "secrets").mkdir(exist_ok=True)
    (overlays / "kind" / "secrets" / "search.env").write_text("api_keys=known\n")
    command = [
        str(overlays.parent / "accounts.sh"),
        "http://127.0.0.1:1",
        "mlflow",
        "standalone",
        "search",
    ]
    run_script(overlays, "secrets.sh", "mlflow", "search")
    assert "known" not in values_of(overlays, "search", "search")["api_keys"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 1
    assert "a name or password is missing: run deploy/secrets.sh" in result.stderr


def test_secrets_that_git_would_commit_are_refused(overlays: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(overlays.parents[1])], check=True)
    done = subprocess.run(
        [overlays.parent / "secrets.sh", "search"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "git would commit deploy/overlays/search/secrets/search.env" in done.stderr
    assert not list(overlays.rglob("*.env"))
