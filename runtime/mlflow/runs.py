"""One run per stage, under one parent run per pipeline."""

import json
import logging
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import mlflow
from matplotlib.figure import Figure
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from runtime.mlflow.retry_queue import RetryQueue

DEFAULT_STORE = "sqlite:///mlflow.db"
PIPELINE_TAG = "bifocal.pipeline"
FLUSH_SECONDS = 120.0
# Errors that no waiting mends.
FINAL = {
    "INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "PERMISSION_DENIED",
    "UNAUTHENTICATED",
}  # fmt: skip


def server() -> str:
    """Where runs and models are kept."""
    return os.environ.get("MLFLOW_TRACKING_URI", DEFAULT_STORE)


@contextmanager
def explained() -> Iterator[None]:
    """Make what MLflow raises an OSError that says where; a user mends that, and needs no traceback."""
    try:
        yield
    except MlflowException as error:
        raise OSError(f"MLflow at {server()}: {error}; 'python -m pipelines doctor' looks at it") from error


def _passes(error: Exception) -> bool:
    return isinstance(error, OSError) or (isinstance(error, MlflowException) and error.error_code not in FINAL)


_mailbox = RetryQueue("MLflow", _passes)


@contextmanager
def stage_run(stage: str, values: Mapping[str, Any], tags: Mapping[str, str]) -> Iterator[None]:
    """Run the body inside an MLflow run called ``stage``.

    The parent is the run of this git commit with these parameters: stages that are started one by one, by DVC or by
    hand, find the same one; on a cluster, where a stage knows its own parameters alone, ``BIFOCAL_PIPELINE`` names
    it. A run given from outside (``MLFLOW_RUN_ID``) is resumed instead.

    The server must answer at the start. If it goes away later, the body goes on, and what it logs is sent when the
    server is back, at the latest two minutes after the end.

    Args:
        values: all parameters of the pipeline; the stage's own section becomes the run's params.
        tags: what else identifies the stage's work, such as input hashes.

    Raises:
        OSError: the server does not answer at the start, or refuses.
    """
    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    mlflow.set_tracking_uri(server())
    tags = {"git_commit": git_commit(), **tags}
    if "MLFLOW_RUN_ID" in os.environ:
        with explained(), _run():
            _describe(stage, values, tags)
            yield
        _mailbox.flush(FLUSH_SECONDS)
        return
    identity = json.dumps([tags["git_commit"], values], sort_keys=True, default=str)
    pipeline = os.environ.get("BIFOCAL_PIPELINE") or sha256(identity.encode()).hexdigest()[:16]
    with explained():
        mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "bifocal"))
        parent = _parent(pipeline)
    with (
        explained(),
        _run(run_id=parent, run_name=f"pipeline {pipeline[:6]}", tags={PIPELINE_TAG: pipeline}),
        _run(run_name=stage, nested=True),
    ):
        _describe(stage, values, tags)
        yield
    _mailbox.flush(FLUSH_SECONDS)


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
            if not _passes(error):
                raise
            _mailbox.post(lambda: mlflow.MlflowClient().set_terminated(run_id, status))


def log_metrics(figures: Mapping[str, float], step: int | None = None) -> None:
    """Log figures to the stage's run; names may not hold ``@``, so R@1 becomes R_at_1. Nothing outside a run."""
    run = mlflow.active_run()
    if run:
        now = time.time_ns() // 1_000_000
        metrics = [Metric(name.replace("@", "_at_"), float(value), now, step or 0) for name, value in figures.items()]
        _mailbox.post(lambda: mlflow.MlflowClient().log_batch(run.info.run_id, metrics))


def log_figure(figure: Figure, name: str) -> None:
    """Log a figure as ``name``, a path with its ending. Nothing outside a run."""
    run = mlflow.active_run()
    if run:
        _mailbox.post(lambda: mlflow.MlflowClient().log_figure(run.info.run_id, figure, name))


def log_files(directory: Path) -> None:
    """Log the files of ``directory``. Nothing outside a run."""
    run = mlflow.active_run()
    if run:
        _mailbox.post(lambda: mlflow.MlflowClient().log_artifacts(run.info.run_id, str(directory)))


def git_commit() -> str:
    """The commit of the checkout, with ``-dirty`` if files differ from it; ``unknown`` outside a checkout."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or os.environ.get("BIFOCAL_GIT_COMMIT", "unknown")


def _parent(pipeline: str) -> str | None:
    found = mlflow.search_runs(
        filter_string=f"tags.`{PIPELINE_TAG}` = '{pipeline}'", max_results=1, output_format="list"
    )
    return found[0].info.run_id if found else None


def _describe(stage: str, values: Mapping[str, Any], tags: Mapping[str, str]) -> None:
    mlflow.set_tags({"stage": stage, **tags})
    mlflow.log_params({"seed": values["seed"], **_flat(values[stage])})


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
