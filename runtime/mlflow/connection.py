"""The MLflow server: its address, its errors, a client, the experiment and the pages of runs."""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import mlflow
from mlflow.entities import Experiment, Run
from mlflow.environment_variables import MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT
from mlflow.exceptions import MlflowException
from mlflow.store.artifact import http_artifact_repo
from mlflow.tracking.registry import UnsupportedModelRegistryStoreURIException
from mlflow.utils.rest_utils import http_request
from sqlalchemy.exc import ArgumentError, DBAPIError

from bifocal.durable import replace_file
from bifocal.progress import log_line
from runtime.checkout import project_folder, project_store, tracking_uri
from runtime.redaction import redact

EXPERIMENT = "bifocal"
T = TypeVar("T")
MAX_KEY = 250
"""Characters of a key in MLflow's database (mlflow 3.17, ``MAX_ENTITY_KEY_LENGTH``)."""
PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Columns of MLflow's database (mlflow 3.17) with absolute addresses of files."""
# Let the server send and take the files itself: otherwise MLflow 3.17 names addresses of its
# bucket, which a network policy, or the network of this machine, may not reach.
for _name in ("MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD", "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD"):
    os.environ.setdefault(_name, "false")


def connect() -> mlflow.MlflowClient:
    """Return the client of the server at ``tracking_uri()``, one per address."""
    uri = tracking_uri()
    try:
        mlflow.set_tracking_uri(uri)
        return _client(uri)
    except (
        ArgumentError,
        ImportError,
        ValueError,
        UnsupportedModelRegistryStoreURIException,
    ) as error:
        raise OSError(
            redact(f"MLFLOW_TRACKING_URI is {uri}, which is not an address of MLflow: {error}")
        ) from error


@cache
def _client(uri: str) -> mlflow.MlflowClient:
    scheme, _, path = uri.partition(":///")
    if scheme == "sqlite" and "?" not in path and not Path(path).exists():
        _create_tables(Path(path))
    client = mlflow.MlflowClient(uri)
    if scheme == "sqlite" and uri == project_store():
        _follow_checkout(Path(path))
    return client


def _create_tables(database: Path) -> None:
    """Write a new database of SQLite aside: MLflow cannot go on with the tables that a killed
    process has begun."""

    def create(aside: Path) -> None:
        if database.exists():  # another process was faster
            raise FileExistsError(f"{database} exists already")
        aside.write_bytes(b"")
        mlflow.MlflowClient(f"sqlite:///{aside}").search_experiments()

    database.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        replace_file(database, create)


def _follow_checkout(database: Path) -> None:
    """Let a database refer to the files beside it after its checkout was moved or copied: MLflow
    keeps their paths."""
    folder = database.parent / "mlruns"
    like = (
        "SELECT DISTINCT artifact_location FROM experiments WHERE artifact_location LIKE "
        "'file:///%/mlruns'"
    )
    with closing(sqlite3.connect(database)) as connection, connection:
        for old in {place for (place,) in connection.execute(like)} - {folder.as_uri()}:
            previous = Path(unquote(urlsplit(old).path))
            if previous.is_dir() and not previous.with_name(database.name).exists():
                continue  # a folder that the user chose
            if not folder.is_dir():
                raise OSError(
                    f"{database} belongs to another checkout, which has its files at {old}: "
                    f"copy them to {folder}, or move the database away for a new one"
                )
            for table, column in PLACES:
                end = len(old) + 1
                change = f"UPDATE {table} SET {column} = ? || substr({column}, {end}) WHERE "
                inside = f"{column} = ? OR substr({column}, 1, {end}) = ?"
                connection.execute(change + inside, (folder.as_uri(), old, f"{old}/"))
            log_line(
                f"{database} was moved or copied with its checkout: its files are in {folder} now"
            )


def find_experiment(client: mlflow.MlflowClient, name: str = EXPERIMENT) -> Experiment | None:
    """Return an experiment of the server, whose files must not be in a folder of its machine."""
    found = client.get_experiment_by_name(name)
    if found is not None and not found.experiment_id:
        raise OSError(f"{redact(tracking_uri())} answers with another text than MLflow's API")
    place = found.artifact_location if found else ""
    if tracking_uri().startswith("http") and urlsplit(place).scheme in ("", "file") and place:
        raise OSError(
            f"MLflow at {redact(tracking_uri())} keeps the files of {name!r} in {place}, a folder "
            "of its own machine, to which no client can write: start the server with "
            "--artifacts-destination, and name a new experiment by MLFLOW_EXPERIMENT_NAME"
        )
    return found


def experiment_id(client: mlflow.MlflowClient) -> str:
    """Return the id of ``MLFLOW_EXPERIMENT_NAME``, else ``MLFLOW_EXPERIMENT_ID``; safe for two
    processes. The project's own database gets an absolute folder of files: 'dvc exp run --temp'
    deletes relative ones.
    """
    name, number = os.environ.get("MLFLOW_EXPERIMENT_NAME"), os.environ.get("MLFLOW_EXPERIMENT_ID")
    if number and not name:
        name = str(client.get_experiment(number).name)
    name = name or EXPERIMENT
    found = find_experiment(client, name)
    if found is None:
        try:
            files = (
                (project_folder() / "mlruns").as_uri()
                if tracking_uri() == project_store()
                else None
            )
            # MLflow 3 shows experiments of another kind as an agent's, without their runs.
            tags = {"mlflow.experimentKind": "custom_model_development"}
            client.create_experiment(name, artifact_location=files, tags=tags)
        except MlflowException:
            if find_experiment(client, name) is None:  # no other process was faster
                raise
        found = find_experiment(client, name)
        assert found is not None
    if found.lifecycle_stage != "active":
        raise OSError(
            f"the experiment {name!r} of MLflow was deleted: restore it by 'mlflow experiments "
            f"restore --experiment-id {found.experiment_id}', or name another one by "
            "MLFLOW_EXPERIMENT_NAME"
        )
    return str(found.experiment_id)


def run_page(run: Run) -> str:
    """Return a run's address without credentials, "" for a database; ``BIFOCAL_MLFLOW_UI`` replaces
    the server's."""
    server = os.environ.get("BIFOCAL_MLFLOW_UI", tracking_uri())
    if not server.startswith("http"):
        return ""
    return redact(
        f"{server.rstrip('/')}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
    )


@contextmanager
def mlflow_errors_as_oserror() -> Iterator[None]:
    """Raise MLflow's errors, also of a locked database, as OSError with the server's address,
    without SQL."""
    try:
        yield
    except (MlflowException, DBAPIError, sqlite3.Error) as error:
        message = str(error.orig if isinstance(error, DBAPIError) else error).partition("\n[SQL: ")[
            0
        ]
        raise OSError(
            redact(
                f"MLflow at {tracking_uri()}: {message}; 'python -m pipelines doctor' checks "
                "the server"
            )
        ) from error


def download(folder: Path, **source: str) -> Path:
    """Download ``artifact_uri``, or ``artifact_path`` of the run ``run_id``, to ``folder``; return
    its path."""
    with mlflow_errors_as_oserror():
        connect()
        return Path(mlflow.artifacts.download_artifacts(**source, dst_path=str(folder)))


def allowed(name: str) -> str:
    """Return the name of a parameter, a metric or a tag as MLflow accepts it: ``R@1`` becomes
    ``R_at_1``."""
    return re.sub(r"[^\w.\- :/]", "_", name.replace("@", "_at_"))[:MAX_KEY]


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

    MLflow 3.17 reads ``MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT`` for Azure and Google only: its
    client for the server's own artifacts has the time-out of all requests, by default 120 s.
    """
    options.setdefault("timeout", MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT.get())
    return http_request(*arguments, **options)


vars(http_artifact_repo).update(http_request=artifact_request)
