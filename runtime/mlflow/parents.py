"""Parent runs: one MLflow run per pipeline run. On a cluster, the first step creates it and the
exit handler ends it, or Kubeflow's MLflow plugin does both (kubeflow/pipelines 2.17,
``backend/src/apiserver/plugins/mlflow/handler.go:85``); stages that start one by one find or create
it under a lock of this machine.
"""

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import mlflow
from filelock import FileLock
from mlflow.entities import Run, RunStatus

from runtime.kubeflow.runs import kfp_run_page
from runtime.mlflow.connection import (
    connect,
    experiment_id,
    find_experiment,
    mlflow_errors_as_oserror,
    run_page,
    tracking_uri,
)

PIPELINE_TAG = "bifocal.pipeline"
# The tags of Kubeflow's MLflow plugin (backend/src/apiserver/plugins/mlflow/util.go:34), so both
# ways look alike.
KFP_RUN_TAG, KFP_URL_TAG = "kfp.pipeline_run_id", "kfp.pipeline_run_url"
PARENT_TAG, NOTE_TAG = "mlflow.parentRunId", "mlflow.note.content"
MAX_CHILDREN = 1000


@dataclass(frozen=True)
class PipelineRun:
    """The parent run of a pipeline run."""

    run_id: str
    url: str  # address of its page; "" if the store is a database without a server


def create_pipeline_run(
    pipeline: str, *, name: str = "", tags: Mapping[str, str] | None = None
) -> PipelineRun:
    """Create the parent run, before every stage and in only one step, or return an earlier
    attempt's parent run."""
    tags = {PIPELINE_TAG: pipeline, NOTE_TAG: _note(pipeline), **kfp_tags(pipeline), **(tags or {})}
    with mlflow_errors_as_oserror():
        client = connect()
        parent = _plugin_parent(client) or find_parent(client, pipeline)
        if parent is None:
            parent = client.create_run(
                experiment_id(client), tags=tags, run_name=name or f"pipeline {pipeline[:8]}"
            )
        else:
            for key, value in tags.items():
                client.set_tag(parent.info.run_id, key, value)
            if not under_plugin():
                client.update_run(
                    parent.info.run_id, status="RUNNING"
                )  # a retried pipeline run goes on
        return PipelineRun(parent.info.run_id, run_page(parent))


def end_pipeline_run(pipeline: str, succeeded: bool) -> None:
    """End the parent run, if any, with ``duration_seconds`` and ``core_hours``; RUNNING (killed)
    stages get FAILED."""
    if under_plugin():
        return
    with mlflow_errors_as_oserror():
        client = connect()
        if (parent := find_parent(client, pipeline)) is None:
            return
        stages = children(client, parent)
        for stage in stages:
            if stage.info.status == "RUNNING":
                client.set_terminated(stage.info.run_id, "FAILED")
        hours = sum(stage.data.metrics.get("core_hours", 0.0) for stage in stages)
        client.log_metric(
            parent.info.run_id, "duration_seconds", time.time() - parent.info.start_time / 1000
        )
        client.log_metric(parent.info.run_id, "core_hours", hours)
        for version in (stage.data.metrics.get("version") for stage in stages):
            if version is not None:  # of the stage that registered a model
                name = str(parent.info.run_name).partition(", version")[0]
                client.update_run(parent.info.run_id, name=f"{name}, version {version:.0f}")
        client.set_terminated(parent.info.run_id, "FINISHED" if succeeded else "FAILED")


def kfp_tags(kfp_run: str) -> dict[str, str]:
    """Return the tags that link a run or a version to a run in Kubeflow."""
    page = kfp_run_page(kfp_run)
    return {KFP_RUN_TAG: kfp_run, **({KFP_URL_TAG: page} if page else {})}


def under_plugin() -> bool:
    """Whether Kubeflow's MLflow plugin gave this step a run, see ``settings.injectUserEnvVars`` of
    the plugin."""
    return "MLFLOW_RUN_ID" in os.environ and "KFP_MLFLOW_CONFIG" in os.environ


def find_parent(client: mlflow.MlflowClient, pipeline: str) -> Run | None:
    """Return the parent run of a pipeline run, if there is one."""
    condition = f"tags.`{PIPELINE_TAG}` = '{pipeline}'"
    runs = client.search_runs(
        [experiment_id(client)], condition, max_results=1, order_by=["attributes.start_time ASC"]
    )
    return runs[0] if runs else None


def last_pipeline_run(experiment: str) -> Run | None:
    """Return the newest parent run of an experiment, if there is one."""
    with mlflow_errors_as_oserror():
        client = connect()
        if (found := find_experiment(client, experiment)) is None:
            return None
        condition, order = f"tags.`{PIPELINE_TAG}` != ''", ["attributes.start_time DESC"]
        runs = client.search_runs([found.experiment_id], condition, max_results=1, order_by=order)
        return runs[0] if runs else None


def find_or_create_parent(client: mlflow.MlflowClient, pipeline: str) -> Run:
    """Return the parent run of stages that are started one by one on this machine."""
    with _machine_lock(pipeline):
        if found := find_parent(client, pipeline):
            client.update_run(found.info.run_id, status="RUNNING")
            return found
        created: Run = client.create_run(
            experiment_id(client),
            tags={PIPELINE_TAG: pipeline},
            run_name=f"pipeline {pipeline[:6]}",
        )
        return created


def update_status(client: mlflow.MlflowClient, pipeline: str) -> None:
    """Give the parent the status of the last run of each stage: FAILED if one failed, RUNNING if
    one runs."""
    with _machine_lock(pipeline):
        if (parent := find_parent(client, pipeline)) is None:  # deleted by a user
            return
        last = {
            child.data.tags.get("stage"): child.info.status for child in children(client, parent)
        }
        statuses = set(last.values())
        failed, running = {"FAILED", "KILLED"} & statuses, "RUNNING" in statuses
        status = "FAILED" if failed else "RUNNING" if running else "FINISHED"
        if RunStatus.is_terminated(RunStatus.from_string(status)):
            client.set_terminated(parent.info.run_id, status)
        else:
            client.update_run(parent.info.run_id, status=status)


def children(client: mlflow.MlflowClient, parent: Run) -> list[Run]:
    """Return the runs nested in ``parent``, oldest first."""
    condition = f"tags.`{PARENT_TAG}` = '{parent.info.run_id}'"
    order = ["attributes.start_time ASC"]
    return list(
        client.search_runs(
            [parent.info.experiment_id], condition, max_results=MAX_CHILDREN, order_by=order
        )
    )


def _note(kfp_run: str) -> str:
    page = kfp_run_page(kfp_run)
    return (
        f"Run [{kfp_run}]({page}) of Kubeflow Pipelines."
        if page
        else f"Run {kfp_run} of Kubeflow Pipelines."
    )


def _plugin_parent(client: mlflow.MlflowClient) -> Run | None:
    if not under_plugin():
        return None
    step = client.get_run(os.environ["MLFLOW_RUN_ID"])
    return client.get_run(step.data.tags[PARENT_TAG])


def _machine_lock(pipeline: str) -> FileLock:
    name = sha256(f"{tracking_uri()} {pipeline}".encode()).hexdigest()[:16]
    return FileLock(Path(tempfile.gettempdir()) / f"bifocal-{os.getuid()}-{name}.lock", timeout=60)
