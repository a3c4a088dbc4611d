"""End of a process at a write to the registry; runs that a user deletes."""

import shutil
from collections.abc import Callable, Iterable

import mlflow
import pytest
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore


class Killed(BaseException):
    """End of a process."""


def limit_writes(patch: pytest.MonkeyPatch, names: Iterable[str]) -> Callable[[int], None]:
    """Return a function that lets so many more calls of these methods of MLflow's client
    succeed."""
    left = [10**9]

    def limited(name: str, write: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            # The lock itself is also taken and released by parameters, also by a killed process in
            # a test.
            if name != "log_param" or str(arguments[2]).startswith(("plan", "end")):
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            return write(*arguments, **options)

        return call

    for name in names:
        patch.setattr(mlflow.MlflowClient, name, limited(name, getattr(mlflow.MlflowClient, name)))

    def kill(writes: int) -> None:
        left[0] = writes

    return kill


def lose_run(run_id: str) -> None:
    """Delete a run and its files, as 'mlflow runs delete' and 'mlflow gc' do."""
    client = mlflow.MlflowClient()
    files = client.get_run(run_id).info.artifact_uri
    shutil.rmtree(files.removeprefix("file://"), ignore_errors=True)
    client.delete_run(run_id)
    SqlAlchemyStore(mlflow.get_tracking_uri(), files)._hard_delete_run(run_id)
