"""Redaction of credentials in messages: every error, log line and check passes through ``redact``."""

import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from html import escape
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
MIN_LENGTH = 6
"""Shorter values of the environment are not searched for in messages: they would match parts of words."""
USERINFO = re.compile(r"(?<=://)[^\s/?#'\"]+@")
_NAMES = r"(?:password|passwd|pwd|secret|token|access_token|api_?key|x-amz-(?:signature|credential|security-token))"
ASSIGNMENT = re.compile(rf"(?i)(\b{_NAMES}=|[\"']{_NAMES}[\"']\s*:\s*[\"'])[^\s&\"',;]+")
AUTHORIZATION = re.compile(r"(?i)(\bauthorization\b[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+)[\w.~+/=-]+")
SECRET_NAME = re.compile(
    r"(^|_)(PASSWORD|PASSWD|PGPASSWORD|SECRET|TOKEN|CREDENTIALS?|COOKIES?|API_KEYS?|(ADMIN|ACCESS|ENCRYPTION)_KEY"
    r"|NOTICE_URL)(_KEY)?$"
)


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Return ``text`` with ``***`` for credentials: in URLs, ``password=``, headers, and values of secret variables."""
    text = USERINFO.sub(f"{HIDDEN}@", text)
    secrets = _secrets(os.environ if environment is None else environment)
    spelled = {form for secret in secrets if len(secret.strip()) >= MIN_LENGTH for form in _forms(secret.strip())}
    if spelled:
        # Longest first: one secret may contain another.
        text = re.sub("|".join(map(_pattern, sorted(spelled, key=len, reverse=True))), HIDDEN, text)
    return AUTHORIZATION.sub(rf"\1{HIDDEN}", ASSIGNMENT.sub(rf"\1{HIDDEN}", text))


def print_traceback() -> None:
    """Print the traceback of the current exception to stderr, redacted."""
    sys.stderr.write(redact(traceback.format_exc()))


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the secret values in ``environment``: values of variables with such names, and passwords in URLs."""
    for name, value in environment.items():
        if SECRET_NAME.search(name):
            yield from (value, *re.split("[,;]", value))  # keys of several clients
            if "COOKIE" in name:
                yield from (cookie.partition("=")[2] for cookie in value.split(";"))
        if "://" in value:
            for password in _passwords(value):
                yield from (password, unquote(password))


def _passwords(url: str) -> Iterator[str]:
    """Yield the password of a URL, or the user of an HTTP address without one: a token."""
    rest = url.partition("://")[2]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    # A password may have characters that belong quoted.
    user, _, password = (authority if "@" in authority else rest).rpartition("@")[0].partition(":")
    yield password or (user if url.startswith("http") else "")
    if "@" not in authority:
        yield from re.split("[/?#]", password)


def _forms(secret: str) -> set[str]:
    """Return the spellings of a secret in texts, addresses, JSON and HTML."""
    spelled = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), escape(secret)}
    return spelled | {repr(secret)[1:-1], json.dumps(secret)[1:-1]}


def _pattern(form: str) -> str:
    """Return the pattern of a spelling, also in a ``repr`` within others: with backslashes before quotes."""
    letters = {"\\": r"\\+", "'": r"\\*'", '"': r'\\*"'}
    return "".join(letters.get(letter, re.escape(letter)) for letter in form)
