"""MLflow runs: one per stage, nested in one parent run per pipeline, and one per monitored model.

Requests wait in a queue while the server is down.
"""

import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Run
from mlflow.exceptions import MlflowException
from requests import HTTPError

from bifocal.durable import json_digest
from bifocal.progress import log_line
from runtime.artifacts import artifact_hash, read_manifest
from runtime.checkout import ask_git
from runtime.mlflow.connection import allowed, connect, experiment_id, mlflow_errors_as_oserror
from runtime.mlflow.parents import (
    PIPELINE_TAG,
    find_or_create_parent,
    find_parent,
    kfp_tags,
    update_status,
)
from runtime.redaction import redact
from runtime.spec import flatten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bifocal.monitoring.reference import Reference
    from bifocal.monitoring.week import Week

FLUSH_SECONDS = 120.0
MONITORING_TAG = "bifocal.monitoring"
PERMANENT_ERRORS = {
    "INVALID_PARAMETER_VALUE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
}
INSUFFICIENT_STORAGE = 507
DATASETS = ("dataset", "features", "text")
"""Artifacts that are data."""
MAX_DIGEST = 36
"""Characters of a digest in MLflow's database (mlflow 3.17, ``MAX_DATASET_DIGEST_SIZE``)."""
CONTEXT_TAG = "mlflow.data.context"


class RetryQueue:
    """Sends each request to MLflow at once, or after ``retry_delay`` seconds with a later request
    or ``flush`` while the server is down; permanent errors are raised.
    """

    def __init__(
        self,
        retry_delay: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.retry_delay, self.clock, self.sleep = retry_delay, clock, sleep
        self._pending: deque[Callable[[], object]] = deque()
        self._retry_at = 0.0

    def submit(self, send: Callable[[], object]) -> None:
        """Call ``send`` after all earlier requests: now, or when the server is up again."""
        self._pending.append(send)
        if self.clock() >= self._retry_at:
            self._send_pending()

    def flush(self, seconds: float) -> int:
        """Send the pending requests within ``seconds``; drop the rest and return its number."""
        deadline = self.clock() + seconds
        while not self._send_pending() and self.clock() < deadline:
            self.sleep(min(self.retry_delay, max(0.0, deadline - self.clock())))
        dropped = len(self._pending)
        if dropped:
            log_line(
                f"MLflow is still down: {dropped} requests are dropped; "
                "the artifact's manifest and tables have their values"
            )
        self._pending.clear()
        return dropped

    def _send_pending(self) -> bool:
        """Whether all pending requests were sent."""
        while self._pending:
            try:
                self._pending[0]()
            except Exception as error:
                if not _is_transient(error):
                    self._pending.popleft()
                    raise
                if self.clock() >= self._retry_at:
                    log_line(
                        f"MLflow does not answer; the stage continues, "
                        f"{len(self._pending)} requests are pending"
                    )
                self._retry_at = self.clock() + self.retry_delay
                return False
            self._pending.popleft()
        return True


def _is_transient(error: Exception) -> bool:
    if isinstance(error, MlflowException):
        return error.error_code not in PERMANENT_ERRORS
    if isinstance(error, HTTPError) and error.response is not None:
        status = error.response.status_code
        return status in (408, 429) or (status >= 500 and status != INSUFFICIENT_STORAGE)
    return isinstance(error, OSError)


_queue = RetryQueue()


def _submit_file(name: str, send: Callable[[], object]) -> None:
    """Send a file of the run; one that the server or a proxy refuses is a warning."""

    def attempt() -> None:
        try:
            send()
        except (MlflowException, OSError) as error:
            if _is_transient(error):
                raise
            log_line(redact(f"warning: MLflow does not have {name}: {error}"))

    _queue.submit(attempt)


@contextmanager
def stage_run(stage: str, values: Mapping[str, Any], tags: Mapping[str, str]) -> Iterator[None]:
    """Run the body inside an MLflow run, nested in the parent of ``KFP_RUN_ID``, else of git commit
    and parameters, or resume ``MLFLOW_RUN_ID``. The server must answer at the start; later outages
    delay metrics and files, at most until two minutes after the end. ``values`` of the stage become
    params; ``tags`` identify its work.
    """
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It logs the traceback of an error of the database, which is raised too.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    tags = {"git_commit": git_commit(), **tags}
    with mlflow_errors_as_oserror(), _stage_or_resumed_run(stage, values, tags):
        mlflow.set_tags({"stage": stage, **tags})
        params = {"seed": values["seed"], **flatten(values[stage])}
        mlflow.log_params({allowed(name): value for name, value in params.items()})
        yield
    _queue.flush(FLUSH_SECONDS)


@contextmanager
def _stage_or_resumed_run(
    stage: str, values: Mapping[str, Any], tags: Mapping[str, str]
) -> Iterator[None]:
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
            log_line(
                f"no MLflow run has the tag {PIPELINE_TAG} = {kfp_run}: the run of {stage} has "
                "no parent"
            )
        parent_id = parent.info.run_id if parent else None
        with _run(**options, parent_run_id=parent_id, tags={"stage": stage, **kfp_tags(kfp_run)}):
            yield
        return
    pipeline = json_digest([tags["git_commit"], values])[:16]
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
    """Log metrics to the stage's run; do nothing outside a run. ``R@1`` becomes ``R_at_1``, see
    ``allowed``."""
    run = mlflow.active_run()
    if run:
        now = time.time_ns() // 1_000_000
        batch = [
            Metric(allowed(name), float(value), now, step or 0) for name, value in metrics.items()
        ]
        _queue.submit(lambda: mlflow.MlflowClient().log_batch(run.info.run_id, batch))


def log_figure(figure: "Figure", name: str) -> None:
    """Log a figure as the file ``name``, such as ``plots/recall.png``; do nothing outside a run."""
    run = mlflow.active_run()
    if run:
        _submit_file(name, lambda: mlflow.MlflowClient().log_figure(run.info.run_id, figure, name))


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
        for file in sorted(path for path in directory.rglob("*") if path.is_file()):
            place = file.parent.relative_to(directory).as_posix()
            send = partial(mlflow.MlflowClient().log_artifact, run.info.run_id, str(file))
            _submit_file(file.name, partial(send, None if place == "." else place))


def log_monitoring(week: "Week", reference: "Reference", page: Path) -> None:
    """Log a week's results and page to the run of its reference, at the days since it; ``OSError``
    without a server."""
    step, folder = max((week.day - reference.day).days, 0), week.day.isoformat()
    tags = {"hash.model": reference.model, "monitoring.reference": reference.day.isoformat()}
    with mlflow_errors_as_oserror():
        client = connect()
        experiment = experiment_id(client)
        found = client.search_runs(
            [experiment], f"tags.`{MONITORING_TAG}` = '{reference.name}'", max_results=1
        )
        run: Run = (
            found[0]
            if found
            else client.create_run(
                experiment, tags={MONITORING_TAG: reference.name}, run_name="monitoring"
            )
        )
        run_id, now = run.info.run_id, time.time_ns() // 1_000_000
        for key, value in tags.items():
            client.set_tag(run_id, key, value)
        client.log_batch(
            run_id,
            [Metric(name, float(value), now, step) for name, value in week.metrics().items()],
        )
        client.log_artifact(run_id, str(page), folder)
        client.set_terminated(run_id)


def git_commit() -> str:
    """Commit of the checkout, with ``-dirty`` if files differ from it, but those that DVC writes;
    ``unknown`` outside a checkout, without git."""
    folder, written = Path(__file__).parent, ("dvc.lock", "artifacts", "*.dvc")
    found = ask_git("rev-parse", "HEAD", folder=folder)
    others = (f":(top,exclude){name}" for name in written)
    if found and ask_git("diff", "--name-only", "HEAD", "--", ":(top)", *others, folder=folder):
        found += "-dirty"
    return found or os.environ.get("BIFOCAL_GIT_COMMIT", "unknown")


def datasets_of(artifacts: Mapping[str, Path], stage: str) -> list[DatasetInput]:
    """Return data artifacts as a run's inputs, with a cut hash as digest and the stage as
    context."""
    return [
        DatasetInput(_dataset(name, artifacts[name]), [InputTag(CONTEXT_TAG, stage)])
        for name in DATASETS
        if name in artifacts
    ]


def digest(artifact_digest: str) -> str:
    """Return the hash of an artifact as MLflow stores it."""
    return artifact_digest[:MAX_DIGEST]


def _dataset(name: str, artifact: Path) -> Dataset:
    manifest = read_manifest(artifact)
    source = json.dumps(
        {"stage": manifest["component"], "parameters": manifest["parameters"]}, default=str
    )
    return Dataset(
        name=name,
        digest=digest(artifact_hash(artifact)),
        source_type="bifocal",
        source=source,
        profile=json.dumps(manifest["metrics"]),
    )
