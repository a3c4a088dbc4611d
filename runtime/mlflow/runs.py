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

from bifocal.progress import log_line
from runtime.mlflow.connection import connect, experiment_id, mlflow_errors_as_oserror
from runtime.mlflow.datasets import datasets_of
from runtime.mlflow.parents import PIPELINE_TAG, find_or_create_parent, find_parent, kfp_tags, update_status
from runtime.mlflow.retry_queue import RetryQueue
from runtime.spec import flatten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """Run the body inside an MLflow run, nested in the parent of ``KFP_RUN_ID``, else of git commit and parameters, or
    resume ``MLFLOW_RUN_ID``. The server must answer at the start; later outages delay metrics and files, at most until
    two minutes after the end. ``values`` of the stage become params; ``tags`` identify its work.
    """
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It logs the traceback of an error of the database, which is raised too.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    tags = {"git_commit": git_commit(), **tags}
    with mlflow_errors_as_oserror(), _stage_or_resumed_run(stage, values, tags):
        mlflow.set_tags({"stage": stage, **tags})
        mlflow.log_params({"seed": values["seed"], **flatten(values[stage])})
        yield
    _queue.flush(FLUSH_SECONDS)


@contextmanager
def _stage_or_resumed_run(stage: str, values: Mapping[str, Any], tags: Mapping[str, str]) -> Iterator[None]:
    client = connect()
    if "MLFLOW_RUN_ID" in os.environ:
        with _run():
            yield
        return
    options: dict[str, Any] = {"run_name": stage, "experiment_id": experiment_id(client)}
    kfp_run = os.environ.get("KFP_RUN_ID")
    if kfp_run:
        parent = find_parent(client, kfp_run)
        if parent is None:
            log_line(f"no MLflow run has the tag {PIPELINE_TAG} = {kfp_run}: the run of {stage} has no parent")
        parent_id = parent.info.run_id if parent else None
        with _run(**options, parent_run_id=parent_id, tags={"stage": stage, **kfp_tags(kfp_run)}):
            yield
        return
    identity = json.dumps([tags["git_commit"], values], sort_keys=True, default=str)
    pipeline = sha256(identity.encode()).hexdigest()[:16]
    parent = find_or_create_parent(client, pipeline)
    try:
        with _run(**options, parent_run_id=parent.info.run_id, tags={"stage": stage}):
            yield
    finally:
        _queue.submit(lambda: update_status(client, pipeline))


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


def log_datasets(artifacts: Mapping[str, Path], stage: str) -> None:
    """Log the artifacts that are data as inputs of the stage's run; do nothing outside a run."""
    run = mlflow.active_run()
    datasets = datasets_of(artifacts, stage) if run else []
    if run and datasets:
        _queue.submit(lambda: mlflow.MlflowClient().log_inputs(run.info.run_id, datasets))


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
