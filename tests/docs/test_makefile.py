"""Makefile: no command line holds a password."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_mlflow_server_gets_its_store_from_the_environment() -> None:
    environment = {**os.environ, "MLFLOW_BACKEND_STORE_URI": "postgresql://bifocal:S3cret@db/mlflow"}
    command = ["make", "--dry-run", "mlflow"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "mlflow server" in done.stdout
    assert "S3cret" not in done.stdout
