"""Notices to a web hook, such as Slack's and Mattermost's."""

import json
import os
from urllib.request import Request, urlopen

import click

from runtime.redaction import redact

VARIABLE = "BIFOCAL_NOTICE_URL"
TIMEOUT_SECONDS = 20


def send_notice(text: str) -> int:
    """Print a notice; return 1 if it was sent as ``{"text": ...}`` to ``BIFOCAL_NOTICE_URL``, else 0."""
    text = redact(text)
    click.secho(text, fg="red", err=True)
    url = os.environ.get(VARIABLE)
    if not url:
        return 0
    request = Request(url, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT_SECONDS):
        return 1
