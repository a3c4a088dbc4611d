"""How notify works."""

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.request import Request, urlopen

import click

from runtime.spec import Params

SECONDS = 20


def run(params: Params, *, status: Mapping[str, Any]) -> dict[str, float]:
    """Send ``{"text": ...}`` to the address in ``BIFOCAL_NOTICE_URL`` unless the run succeeded.

    Slack, Mattermost and Teams take such a message.

    Args:
        status: Kubeflow's PipelineTaskFinalStatus: ``state``, ``pipelineJobResourceName``, ``error``.

    Raises:
        OSError: the address does not answer, or refuses.
    """
    if status["state"] == "SUCCEEDED":
        return {"notices": 0}
    reason = status.get("error", {}).get("message", "no reason is known")
    text = f"{status['pipelineJobResourceName']} {status['state']}: {reason}"
    click.secho(text, fg="red", err=True)
    address = os.environ.get("BIFOCAL_NOTICE_URL")
    if not address:
        return {"notices": 0}
    request = Request(address, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=SECONDS):
        return {"notices": 1}
