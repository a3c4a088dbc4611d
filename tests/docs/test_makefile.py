"""Makefile: no command line holds a password, and Python caches what it compiles."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_mlflow_server_gets_its_store_from_the_environment() -> None:
    environment = {
        **os.environ,
        "MLFLOW_BACKEND_STORE_URI": "postgresql://bifocal:S3cret@db/mlflow",
    }
    command = ["make", "--dry-run", "mlflow"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "mlflow server" in done.stdout
    assert "S3cret" not in done.stdout


def test_python_caches_bytecode_whatever_the_environment_says() -> None:
    # Without a cache, a stage that imports torchvision needs 8.7 s of CPU for that import in place
    # of 3 s.
    probe = "probe:\n\t@env"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["make", f"--eval={probe}", "probe"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "PATH=" in done.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in done.stdout
