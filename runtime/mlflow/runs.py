"""MLflow runs: one per stage, nested in one parent run per pipeline."""

import json
import logging
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from runtime.mlflow.connection import mlflow_errors_as_oserror, tracking_uri
from runtime.mlflow.retry_queue import RetryQueue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIPELINE_TAG = "bifocal.pipeline"
FLUSH_SECONDS = 120.0
PERMANENT_ERRORS = {
    "INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "PERMISSION_DENIED",
    "UNAUTHENTICATED",
}  # fmt: skip


def _is_transient(error: Exception) -> bool:
    if isinstance(error, MlflowException):
        return error.error_code not in PERMANENT_ERRORS
    return isinstance(error, OSError)


_queue = RetryQueue("MLflow", _is_transient)


@contextmanager
def stage_run(stage: str, values: Mapping[str, Any], tags: Mapping[str, str]) -> Iterator[None]:
    """Run the body inside an MLflow run named ``stage``.

    The parent run is identified by git commit and parameters, so stages that DVC or a user starts one by one share it.
    On a cluster, where a stage has only its own parameters, ``BIFOCAL_PIPELINE`` identifies it. With
    ``MLFLOW_RUN_ID``, the body resumes that run instead.

    The server must answer at the start. If it goes down later, the body continues; metrics and files are sent when it
    is up again, at the latest two minutes after the end.

    Args:
        values: all parameters of the pipeline; the stage's section becomes the run's params.
        tags: identity of the stage's work, such as input hashes.

    Raises:
        OSError: the server does not answer at the start, or rejects a request.
    """
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    mlflow.set_tracking_uri(tracking_uri())
    tags = {"git_commit": git_commit(), **tags}
    with mlflow_errors_as_oserror(), _stage_or_resumed_run(stage, values, tags):
        mlflow.set_tags({"stage": stage, **tags})
        mlflow.log_params({"seed": values["seed"], **_flatten(values[stage])})
        yield
    _queue.flush(FLUSH_SECONDS)


@contextmanager
def _stage_or_resumed_run(stage: str, values: Mapping[str, Any], tags: Mapping[str, str]) -> Iterator[None]:
    if "MLFLOW_RUN_ID" in os.environ:
        with _run():
            yield
        return
    identity = json.dumps([tags["git_commit"], values], sort_keys=True, default=str)
    pipeline = os.environ.get("BIFOCAL_PIPELINE") or sha256(identity.encode()).hexdigest()[:16]
    mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "bifocal"))
    parent = {"run_id": _find_parent(pipeline), "run_name": f"pipeline {pipeline[:6]}"}
    with _run(**parent, tags={PIPELINE_TAG: pipeline}), _run(run_name=stage, nested=True):
        yield


@contextmanager
def _run(**options: Any) -> Iterator[None]:
    run_id, status = mlflow.start_run(**options).info.run_id, "FAILED"
    try:
        yield
        status = "FINISHED"
    finally:
        try:
            mlflow.end_run(status)
        except (MlflowException, OSError) as error:
            if not _is_transient(error):
                raise
            _queue.submit(lambda: mlflow.MlflowClient().set_terminated(run_id, status))


def log_metrics(metrics: Mapping[str, float], step: int | None = None) -> None:
    """Log metrics to the stage's run; do nothing outside a run. MLflow forbids ``@``: ``R@1`` becomes ``R_at_1``."""
    run = mlflow.active_run()
    if run:
        now = time.time_ns() // 1_000_000
        batch = [Metric(name.replace("@", "_at_"), float(value), now, step or 0) for name, value in metrics.items()]
        _queue.submit(lambda: mlflow.MlflowClient().log_batch(run.info.run_id, batch))


def log_figure(figure: "Figure", name: str) -> None:
    """Log a figure as the file ``name``, such as ``plots/recall.png``; do nothing outside a run."""
    run = mlflow.active_run()
    if run:
        _queue.submit(lambda: mlflow.MlflowClient().log_figure(run.info.run_id, figure, name))


def log_files(directory: Path) -> None:
    """Log the files of ``directory``; do nothing outside a run."""
    run = mlflow.active_run()
    if run:
        _queue.submit(lambda: mlflow.MlflowClient().log_artifacts(run.info.run_id, str(directory)))


def git_commit() -> str:
    """Commit of the checkout, with ``-dirty`` if files differ from it; ``unknown`` outside a checkout."""
    process = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return process.stdout.strip() or os.environ.get("BIFOCAL_GIT_COMMIT", "unknown")


def _find_parent(pipeline: str) -> str | None:
    runs = mlflow.search_runs(
        filter_string=f"tags.`{PIPELINE_TAG}` = '{pipeline}'", max_results=1, output_format="list"
    )
    return runs[0].info.run_id if runs else None


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested values with dotted names; the entries of a list of groups by their position."""
    if isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return {prefix.rstrip("."): value}
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        flat |= _flatten(entry, f"{prefix}{key}.")
    return flat
