"""Step notify: run."""

import os
import time
from collections.abc import Mapping
from typing import Any

import click

from runtime.kubeflow.runs import kfp_run_page, run_state
from runtime.mlflow import end_pipeline_run
from runtime.notices import send_notice
from runtime.redaction import redact
from runtime.spec import Params

WAIT_SECONDS, POLL_SECONDS = 60.0, 5.0
# Kubeflow gives states of ML Metadata (kubeflow/pipelines 2.17,
# backend/src/v2/driver/resolve.go:472).
SUCCESS = ("COMPLETE", "CACHED", "SUCCEEDED")


def run(params: Params, *, status: Mapping[str, Any]) -> dict[str, float]:
    """Send a failed run's reasons to ``BIFOCAL_NOTICE_URL``; ``status`` is Kubeflow's
    PipelineTaskFinalStatus."""
    run_id = os.environ.get("KFP_RUN_ID", "")
    problem = "" if status["state"] in SUCCESS else _problem(run_id, status)
    try:
        return {"notices": _send(run_id, status, problem) if problem else 0}
    finally:
        _end_mlflow_run(run_id, succeeded=not problem)


def _problem(run_id: str, status: Mapping[str, Any]) -> str:
    """Return which tasks failed, "" if none did: the state of a run can also be wrong when it
    succeeded."""
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        # The API server has the state of Argo some seconds later.
        while not (found := run_state(run_id, status.get("pipelineTaskName", ""))).ended:
            if time.monotonic() > deadline:
                return (
                    f"ended as {status['state']}; its tasks did not end within {WAIT_SECONDS:g} s"
                )
            time.sleep(POLL_SECONDS)
    except OSError as error:
        return f"ended as {status['state']}; the reason is unknown: {error}"
    if found.phase == "Succeeded":
        return ""
    advice = " (raise the memory of the step in resources.yaml)"
    reasons = [
        f"{task}: {text}{advice if 'OOMKilled' in text else ''}"
        for task, text in found.failures.items()
    ]
    return f"failed: {'; '.join(reasons) or 'no task failed'}"


def _send(run_id: str, status: Mapping[str, Any], problem: str) -> int:
    """Print the notice, and send it if there is a web hook; return the number of sent notices."""
    page = kfp_run_page(run_id) or (f"run {run_id}" if run_id else "")
    return send_notice(
        ", ".join(filter(None, [f"{status['pipelineJobResourceName']} {problem}", page]))
    )


def _end_mlflow_run(run_id: str, *, succeeded: bool) -> None:
    """End the parent run of this pipeline run; a server that is down must not make a finished run
    fail."""
    if run_id:
        try:
            end_pipeline_run(run_id, succeeded)
        except OSError as error:
            click.secho(redact(str(error)), fg="red", err=True)
