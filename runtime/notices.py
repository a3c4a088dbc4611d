"""Notices to a web hook, such as Slack's and Mattermost's, and by e-mail."""

import json
import os
import smtplib
import ssl
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import click

from runtime.redaction import redact

VARIABLE, TO = "BIFOCAL_NOTICE_URL", "BIFOCAL_NOTICE_EMAIL"
SMTP, FROM = "BIFOCAL_NOTICE_SMTP_URL", "BIFOCAL_NOTICE_FROM"
TIMEOUT_SECONDS = 20


def send_notice(text: str, color: str = "red") -> int:
    """Print a notice, and send it to each configured place; return their number.

    ``BIFOCAL_NOTICE_URL`` gets ``{"text": ...}``. The addresses in ``BIFOCAL_NOTICE_EMAIL``, separated by commas, get
    an e-mail from ``BIFOCAL_NOTICE_FROM`` by the server ``BIFOCAL_NOTICE_SMTP_URL``, such as
    ``smtps://user:password@smtp.example``. ``smtp://`` starts TLS if the server offers it, and before a password.

    Raises:
        OSError: a place does not accept the notice; the other one got it.
    """
    text = redact(text)
    click.secho(text, fg=color, err=True)
    senders = {VARIABLE: _post, TO: _mail}
    problems, sent = [], 0
    for variable, send in senders.items():
        if os.environ.get(variable):
            try:
                send(text, os.environ[variable])
                sent += 1
            except (OSError, ValueError) as error:
                problems.append(f"{variable}: {redact(str(error))}")
    if problems:
        raise OSError(f"a notice was not sent: {'; '.join(problems)}")
    return sent


def report(text: str, color: str) -> None:
    """Send a notice of a change that is made: print an error instead of raising it, as a retry would change nothing."""
    try:
        send_notice(text, color)
    except OSError as error:
        click.secho(str(error), fg="red", err=True)


def _post(text: str, address: str) -> None:
    request = Request(address, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT_SECONDS):
        pass


def _mail(text: str, receivers: str) -> None:
    server = urlsplit(os.environ.get(SMTP, ""))
    if server.scheme not in ("smtp", "smtps") or not server.hostname:
        raise ValueError(f"{SMTP} is not smtp://HOST:PORT or smtps://HOST:PORT")
    message, (subject, *_) = EmailMessage(), text.splitlines()
    message["Subject"], message["From"], message["To"] = subject[:120], os.environ.get(FROM) or receivers, receivers
    message.set_content(text)
    context, port = ssl.create_default_context(), server.port or 0
    client: smtplib.SMTP
    if server.scheme == "smtps":
        client = smtplib.SMTP_SSL(server.hostname, port, timeout=TIMEOUT_SECONDS, context=context)
    else:
        client = smtplib.SMTP(server.hostname, port, timeout=TIMEOUT_SECONDS)
    with client:
        client.ehlo()
        if server.scheme == "smtp" and (server.password or client.has_extn("starttls")):
            client.starttls(context=context)
        if server.password:
            client.login(unquote(server.username or ""), unquote(server.password))
        client.send_message(message)
