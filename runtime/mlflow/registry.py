"""The registry: versions of a model, the aliases that say what they are, and one promoter at a time."""

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.types.schema import Array

from runtime.mlflow.runs import explained, git_commit, server

EVIDENCE = "evidence"
POLL_SECONDS = 0.2
NOBODY = "nobody"
COLUMNS: dict[str, ColSpec | TensorSpec] = {
    "text": ColSpec(DataType.string, "text", required=False),
    # The base64 of an image file.
    "image": ColSpec(DataType.string, "image", required=False),
    "features": ColSpec(Array(Array(DataType.double)), "features", required=False),
}


def register(
    model: str,
    *,
    data: Path,
    code: Sequence[Path],
    loader: str,
    example: pd.DataFrame,
    prediction: pd.DataFrame,
    columns: Sequence[str],
    requirements: Sequence[str],
    tags: Mapping[str, str],
    alias: str,
    evidence: Path,
    description: str,
) -> int:
    """Log a model with the stage's run and register it as a new version.

    Args:
        model: name in the registry.
        data: directory that the loader reads.
        code: files and packages that are served with it.
        loader: module among ``code`` that has ``_load_pyfunc(path)``; so the model is no pickle.
        example, prediction: an input and its answer.
        columns: of COLUMNS, those that it takes; a row has one of them.
        requirements: packages with versions that ``loader`` needs.
        tags: lineage of the version.
        alias: given to the new version, taken from the former.
        evidence: directory that a promotion compares versions by, logged as ``evidence``.
        description: of the version, in Markdown: its model card.

    Returns:
        The version.
    """
    mlflow.log_artifacts(str(evidence), EVIDENCE)
    inputs, outputs = Schema([COLUMNS[name] for name in columns]), infer_signature(example, prediction).outputs
    logged = mlflow.pyfunc.log_model(
        name=model,
        loader_module=loader,
        data_path=str(data),
        code_paths=[str(path) for path in code],
        pip_requirements=list(requirements),
        signature=ModelSignature(inputs, outputs),
        input_example=example,
    )
    version = mlflow.register_model(logged.model_uri, model, tags={"git_commit": git_commit(), **tags})
    client = mlflow.MlflowClient()
    client.update_model_version(model, version.version, description)
    client.set_registered_model_alias(model, alias, version.version)
    return int(version.version)


@dataclass(frozen=True)
class Version:
    """A version of a registered model, and the run that it came from."""

    model: str
    number: int
    run_id: str

    def download(self, folder: Path) -> tuple[Path, Path]:
        """Its files and its evidence, below ``folder``."""
        _connect()
        model = mlflow.artifacts.download_artifacts(
            artifact_uri=f"models:/{self.model}/{self.number}", dst_path=str(folder / "model")
        )
        evidence = mlflow.artifacts.download_artifacts(
            run_id=self.run_id, artifact_path=EVIDENCE, dst_path=str(folder / "run")
        )
        return Path(model), Path(evidence)

    def note(self, tags: Mapping[str, str], name: str, decision: Mapping[str, Any]) -> None:
        """Tag the version, and log ``decision`` as JSON with its run."""
        client = _connect()
        client.log_dict(self.run_id, dict(decision), name)
        for key, value in tags.items():
            client.set_model_version_tag(self.model, str(self.number), key, value)


def get_version(model: str, alias: str) -> Version | None:
    """The version that has ``alias``; None if none has, or there is no such model."""
    try:
        found = _connect().get_model_version_by_alias(model, alias)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    return Version(model, int(found.version), str(found.run_id))


def move_alias(model: str, alias: str, number: int | None) -> None:
    """Give ``alias`` to version ``number``, or take it away; read back, because nothing else says that it held.

    Raises:
        OSError: somebody else moved it at the same time.
    """
    client = _connect()
    if number is None:
        client.delete_registered_model_alias(model, alias)
    else:
        client.set_registered_model_alias(model, alias, str(number))
    found = get_version(model, alias)
    if (found.number if found else None) != number:
        raise OSError(f"{model}@{alias} was set to {number} and reads {found}: somebody else moves it too; look there")


@contextmanager
def promotion_lock(model: str, seconds: float) -> Iterator[None]:
    """Let one process at a time move the aliases of ``model``, wherever it runs.

    The lock is an entry of the registry itself, the empty registered model ``<model>.promotion-lock``: its name is a
    primary key of the database, so that of several who create it exactly one succeeds. It is deleted at the end.

    Raises:
        OSError: somebody else has it for longer than ``seconds``.
    """
    with explained():
        client, name = _connect(), f"{model}.promotion-lock"
        deadline = time.monotonic() + seconds
        former = ""
        while not _taken(client, name):
            holder = _holder(client, name)
            if holder not in (former, NOBODY):
                click.echo(f"waiting for the promotion of {holder}, at most {seconds:g} s", err=True)
                former = holder
            if time.monotonic() > deadline:
                raise OSError(
                    f"{name} exists for more than {seconds:g} s: another promotion is under way, of {holder}. If it "
                    "was killed, 'python -m pipelines promote --unlock' removes what it left"
                )
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            client.delete_registered_model(name)


def remove_lock(model: str) -> str:
    """Remove what a killed promoter left; returns who that was.

    Raises:
        ValueError: there is no lock.
    """
    with explained():
        client, name = _connect(), f"{model}.promotion-lock"
        holder = _holder(client, name)
        if holder == NOBODY:
            raise ValueError(f"there is no {name}: nobody promotes, and nobody was killed promoting")
        client.delete_registered_model(name)
    return holder


def _taken(client: mlflow.MlflowClient, name: str) -> bool:
    try:
        client.create_registered_model(name, description=f"process {os.getpid()} on {socket.gethostname()}")
    except MlflowException as error:
        # The second is MLflow's answer if the lock was deleted while it looked up whose it was.
        if error.error_code not in ("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"):
            raise
        return False
    return True


def _holder(client: mlflow.MlflowClient, name: str) -> str:
    try:
        return str(client.get_registered_model(name).description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return NOBODY


def _connect() -> mlflow.MlflowClient:
    mlflow.set_tracking_uri(server())
    return mlflow.MlflowClient()
