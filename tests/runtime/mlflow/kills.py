"""End of a process at a write to the registry."""

from collections.abc import Callable, Iterable

import mlflow
import pytest


class Killed(BaseException):
    """End of a process."""


def limit_writes(patch: pytest.MonkeyPatch, names: Iterable[str]) -> Callable[[int], None]:
    """Return a function that lets so many more calls of these methods of MLflow's client succeed."""
    left = [10**9]

    def limited(write: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return write(*arguments, **options)

        return call

    for name in names:
        patch.setattr(mlflow.MlflowClient, name, limited(getattr(mlflow.MlflowClient, name)))

    def kill(writes: int) -> None:
        left[0] = writes

    return kill
