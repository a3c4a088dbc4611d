"""Promotion lock: one process at a time moves the aliases of a model.

MLflow's aliases have no compare-and-set, so two promotions at once could overwrite each other.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
import mlflow
from mlflow.exceptions import MlflowException

from runtime.mlflow.connection import connect, mlflow_errors_as_oserror

POLL_SECONDS = 0.2
UNLOCKED = "nobody"


@contextmanager
def promotion_lock(model: str, timeout: float) -> Iterator[None]:
    """Hold the promotion lock of ``model`` during the body; other machines see it too.

    The lock is an empty registered model ``<model>.promotion-lock``. Its name is a primary key of the database, so
    only one of several processes can create it. It is deleted at the end.

    Args:
        timeout: of waiting for the lock, in seconds.

    Raises:
        OSError: another process holds the lock for longer than ``timeout``.
    """
    with mlflow_errors_as_oserror():
        client, name = connect(), _lock_name(model)
        deadline = time.monotonic() + timeout
        reported = ""
        while not _try_acquire(client, name):
            holder = _lock_holder(client, name)
            if holder not in (reported, UNLOCKED):
                click.echo(f"waiting for the promotion lock, held by {holder}, at most {timeout:g} s", err=True)
                reported = holder
            if time.monotonic() > deadline:
                raise OSError(
                    f"{name} was not released within {timeout:g} s: {holder} holds it. "
                    "If that process was killed, remove the lock with 'python -m pipelines promote --unlock'"
                )
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            client.delete_registered_model(name)


def remove_lock(model: str) -> str:
    """Remove the lock that a killed promotion left; return its holder.

    Raises:
        ValueError: there is no lock.
    """
    with mlflow_errors_as_oserror():
        client, name = connect(), _lock_name(model)
        holder = _lock_holder(client, name)
        if holder == UNLOCKED:
            raise ValueError(f"there is no {name}: no promotion is running, and none was killed")
        client.delete_registered_model(name)
    return holder


def _lock_name(model: str) -> str:
    return f"{model}.promotion-lock"


def _try_acquire(client: mlflow.MlflowClient, name: str) -> bool:
    try:
        client.create_registered_model(name, description=f"process {os.getpid()} on {socket.gethostname()}")
    except MlflowException as error:
        # MLflow answers RESOURCE_DOES_NOT_EXIST if the lock is deleted while it looks up the holder.
        if error.error_code not in ("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"):
            raise
        return False
    return True


def _lock_holder(client: mlflow.MlflowClient, name: str) -> str:
    try:
        return str(client.get_registered_model(name).description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return UNLOCKED
