"""Step notify: run."""

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.request import Request, urlopen

import click

from runtime.mlflow import end_pipeline_run
from runtime.redaction import redact
from runtime.spec import Params

TIMEOUT_SECONDS = 20
# Kubeflow gives states of MLMD (kubeflow/pipelines 2.17, backend/src/v2/driver/resolve.go:472). A pod that was killed
# leaves RUNNING, so that is a failure.
SUCCESS = ("COMPLETE", "CACHED", "SUCCEEDED")


def run(params: Params, *, status: Mapping[str, Any]) -> dict[str, float]:
    """Send ``{"text": ...}`` to the web hook ``BIFOCAL_NOTICE_URL`` unless the run succeeded; end its MLflow run.

    Slack, Mattermost and Teams accept this message. Without the variable, the message is only printed.

    Args:
        status: Kubeflow's PipelineTaskFinalStatus: ``state``, ``pipelineJobResourceName``, ``error``.

    Raises:
        OSError: the web hook does not answer or rejects the message.
    """
    succeeded = status["state"] in SUCCESS
    try:
        return {"notices": 0 if succeeded else _send(status)}
    finally:
        _end_mlflow_run(succeeded)


def _send(status: Mapping[str, Any]) -> int:
    """Print the notice, and send it if there is a web hook; return the number of sent notices."""
    reason = status.get("error", {}).get("message", "no error message")
    text = redact(f"{status['pipelineJobResourceName']} {status['state']}: {reason}")
    click.secho(text, fg="red", err=True)
    url = os.environ.get("BIFOCAL_NOTICE_URL")
    if not url:
        return 0
    request = Request(url, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT_SECONDS):
        return 1


def _end_mlflow_run(succeeded: bool) -> None:
    """End the parent run of this pipeline run; a server that is down must not make a finished run fail."""
    kfp_run = os.environ.get("KFP_RUN_ID")
    if kfp_run:
        try:
            end_pipeline_run(kfp_run, succeeded)
        except OSError as error:
            click.secho(redact(str(error)), fg="red", err=True)
