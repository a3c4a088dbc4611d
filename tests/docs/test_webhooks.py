"""The command of docs/mlflow.md that creates a webhook, against a real MLflow server."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import mlflow
import pytest

TEXT = (Path(__file__).parents[2] / "docs/mlflow.md").read_text()


def test_documented_command_creates_a_webhook(mlflow_server: int) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (command,) = re.findall(r"```bash\n(curl .*?)```", TEXT, flags=re.DOTALL)
    address = f"http://127.0.0.1:{mlflow_server}"
    # A public address: the server resolves the host and refuses private ones.
    command = command.replace("deploy.example", "8.8.8.8")
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "MLFLOW_TRACKING_URI": address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    client = mlflow.MlflowClient(address, address)
    (webhook,) = client.list_webhooks()
    client.delete_webhook(webhook.webhook_id)
    assert [str(event) for event in webhook.events] == ["model_version_alias.created"]


def test_configuration_of_the_plugin_is_json() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", TEXT, flags=re.DOTALL)
    assert json.loads(text)["plugins"]["mlflow"]["settings"]["injectUserEnvVars"] is True
