"""Address of the tracking store: a server, or the database of this project."""

import os
import subprocess
from pathlib import Path


def tracking_uri() -> str:
    """Address of the MLflow server or database: ``MLFLOW_TRACKING_URI``, or else ``mlflow.db`` of the project."""
    return os.environ.get("MLFLOW_TRACKING_URI") or project_store()


def project_store() -> str:
    """Address of the project's own database."""
    return f"sqlite:///{project_folder() / 'mlflow.db'}"


def project_folder() -> Path:
    """Top level of the git checkout, else the working directory; ``DVC_ROOT`` for copies that DVC deletes."""
    if "DVC_ROOT" in os.environ:
        return Path(os.environ["DVC_ROOT"]).resolve()
    process = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False)
    return Path(process.stdout.strip() or Path.cwd()).resolve()
