"""Notices to a web hook, such as Slack's and Mattermost's."""

import os

import click

from bifocal.http import request
from runtime.redaction import redact

VARIABLE = "BIFOCAL_NOTICE_URL"


def send_notice(text: str, color: str = "red") -> int:
    """Print a notice, and post ``{"text": ...}`` to ``BIFOCAL_NOTICE_URL``; return the number of
    sent notices.

    Raises:
        OSError: the web hook does not accept the notice.
    """
    text = redact(text)
    click.secho(text, fg=color, err=True)
    if not (address := os.environ.get(VARIABLE)):
        return 0
    try:
        request(address, body={"text": text})
    except (OSError, ValueError) as error:
        raise OSError(f"a notice was not sent: {VARIABLE}: {redact(str(error))}") from error
    return 1


def report(text: str, color: str) -> None:
    """Send a notice of a change that is made: print an error instead of raising it, as a retry
    would change nothing."""
    try:
        send_notice(text, color)
    except OSError as error:
        click.secho(str(error), fg="red", err=True)
