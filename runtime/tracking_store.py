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
    """Top level of the git checkout; the working directory outside of one.

    'dvc exp run --temp' and queued experiments run in a copy of the checkout below .dvc/tmp, which DVC deletes at the
    end. For their stages, DVC sets DVC_ROOT to the project itself (dvc/repo/experiments/queue/base.py:336).
    """
    if "DVC_ROOT" in os.environ:
        return Path(os.environ["DVC_ROOT"]).resolve()
    process = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False)
    return Path(process.stdout.strip() or Path.cwd()).resolve()
