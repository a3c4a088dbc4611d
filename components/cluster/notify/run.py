"""Step notify: run."""

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.request import Request, urlopen

import click

from runtime.spec import Params

TIMEOUT_SECONDS = 20


def run(params: Params, *, status: Mapping[str, Any]) -> dict[str, float]:
    """Send ``{"text": ...}`` to the web hook ``BIFOCAL_NOTICE_URL`` unless the run succeeded.

    Slack, Mattermost and Teams accept this message. Without the variable, the message is only printed.

    Args:
        status: Kubeflow's PipelineTaskFinalStatus: ``state``, ``pipelineJobResourceName``, ``error``.

    Raises:
        OSError: the web hook does not answer or rejects the message.
    """
    if status["state"] == "SUCCEEDED":
        return {"notices": 0}
    reason = status.get("error", {}).get("message", "no error message")
    text = f"{status['pipelineJobResourceName']} {status['state']}: {reason}"
    click.secho(text, fg="red", err=True)
    url = os.environ.get("BIFOCAL_NOTICE_URL")
    if not url:
        return {"notices": 0}
    request = Request(url, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT_SECONDS):
        return {"notices": 1}
