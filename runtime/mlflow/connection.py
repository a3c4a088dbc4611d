"""The MLflow server: its address, its errors, a client."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow
from mlflow.exceptions import MlflowException

DEFAULT_STORE = "sqlite:///mlflow.db"


def tracking_uri() -> str:
    """Address of the server or database: ``MLFLOW_TRACKING_URI``, or ``mlflow.db`` in the working directory."""
    return os.environ.get("MLFLOW_TRACKING_URI", DEFAULT_STORE)


def connect() -> mlflow.MlflowClient:
    """Return a client of the server at ``tracking_uri()``."""
    mlflow.set_tracking_uri(tracking_uri())
    return mlflow.MlflowClient()


@contextmanager
def mlflow_errors_as_oserror() -> Iterator[None]:
    """Raise MLflow's errors as OSError with the server's address: the command line prints those without traceback."""
    try:
        yield
    except MlflowException as error:
        raise OSError(f"MLflow at {tracking_uri()}: {error}; 'python -m pipelines doctor' checks the server") from error
