"""The MLflow server: its address, its errors, a client, the experiment and the pages of runs."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import mlflow
from mlflow.entities import Run
from mlflow.environment_variables import MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT
from mlflow.exceptions import MlflowException
from mlflow.store.artifact import http_artifact_repo
from mlflow.utils.rest_utils import http_request
from sqlalchemy.exc import DBAPIError

from bifocal.durable import replace_file
from runtime.checkout import project_folder, project_store, tracking_uri
from runtime.redaction import redact

EXPERIMENT = "bifocal"
T = TypeVar("T")
# Let the server send and take the files itself: otherwise MLflow 3.17 names addresses of its bucket, which a network
# policy, or the network of this machine, may not reach.
for _name in ("MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD", "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD"):
    os.environ.setdefault(_name, "false")


def connect() -> mlflow.MlflowClient:
    """Return a client of the server at ``tracking_uri()``."""
    scheme, _, path = tracking_uri().partition(":///")
    if scheme == "sqlite" and "?" not in path and not Path(path).exists():
        _create_tables(Path(path))
    mlflow.set_tracking_uri(tracking_uri())
    return mlflow.MlflowClient()


def _create_tables(database: Path) -> None:
    """Write a new database of SQLite aside: MLflow cannot go on with the tables that a killed process has begun."""

    def create(aside: Path) -> None:
        if database.exists():  # another process was faster
            raise FileExistsError(f"{database} exists already")
        aside.write_bytes(b"")
        mlflow.MlflowClient(f"sqlite:///{aside}").search_experiments()

    database.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        replace_file(database, create)


def experiment_id(client: mlflow.MlflowClient) -> str:
    """Return the id of ``MLFLOW_EXPERIMENT_NAME``; safe for two processes. The project's own database gets an absolute
    folder of files: 'dvc exp run --temp' deletes relative ones.
    """
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            files = (project_folder() / "mlruns").as_uri() if tracking_uri() == project_store() else None
            return str(client.create_experiment(name, artifact_location=files))
        except MlflowException as error:
            found = client.get_experiment_by_name(name)
            if found is None:
                raise error
    return str(found.experiment_id)


def run_page(run: Run) -> str:
    """Return a run's address without credentials, "" for a database; ``BIFOCAL_MLFLOW_UI`` replaces the server's."""
    server = os.environ.get("BIFOCAL_MLFLOW_UI", tracking_uri())
    if not server.startswith("http"):
        return ""
    return redact(f"{server.rstrip('/')}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}")


@contextmanager
def mlflow_errors_as_oserror() -> Iterator[None]:
    """Raise MLflow's errors, also of a locked database, as OSError with the server's address, without SQL."""
    try:
        yield
    except (MlflowException, DBAPIError) as error:
        message = str(error.orig if isinstance(error, DBAPIError) else error).partition("\n[SQL: ")[0]
        raise OSError(
            redact(f"MLflow at {tracking_uri()}: {message}; 'python -m pipelines doctor' checks the server")
        ) from error


def download(folder: Path, **source: str) -> Path:
    """Download ``artifact_uri``, or ``artifact_path`` of the run ``run_id``, to ``folder``; return its path."""
    with mlflow_errors_as_oserror():
        connect()
        return Path(mlflow.artifacts.download_artifacts(**source, dst_path=str(folder)))


def if_exists(request: Callable[[], T]) -> T | None:
    """Return MLflow's answer to a request; None for what a user deleted."""
    try:
        return request()
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def find_run(client: mlflow.MlflowClient, run_id: str) -> Run | None:
    """Return a run, also one that a user deleted; None after 'mlflow gc'."""
    return if_exists(lambda: client.get_run(run_id))


def list_folder(client: mlflow.MlflowClient, run_id: str, folder: str) -> list[str]:
    """Return the paths in a folder of a run; none if there is no such folder or run any more."""
    return [entry.path for entry in if_exists(lambda: client.list_artifacts(run_id, folder)) or []]


def artifact_request(*arguments: Any, **options: Any) -> Any:
    """Send a request that carries an artifact, with the time-out of artifacts.

    MLflow 3.17 reads ``MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT`` for Azure and Google only: its client for the server's
    own artifacts has the time-out of all requests, by default 120 s.
    """
    options.setdefault("timeout", MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT.get())
    return http_request(*arguments, **options)


vars(http_artifact_repo).update(http_request=artifact_request)
