"""Redaction of credentials in messages: every error, log line and check passes through ``redact``."""

import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

HIDDEN = "***"
MIN_LENGTH = 6
"""Shorter values of the environment are not searched for in messages: they would match parts of words."""
USERINFO = re.compile(r"(?<=://)[^\s/?#'\"]+@")
_NAMES = r"(?:password|passwd|pwd|secret|token|access_token|api_?key|x-amz-(?:signature|credential|security-token))"
ASSIGNMENT = re.compile(rf"(?i)(\b{_NAMES}=|[\"']{_NAMES}[\"']\s*:\s*[\"'])[^\s&\"',;]+")
AUTHORIZATION = re.compile(r"(?i)(\bauthorization\b[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+)[\w.~+/=-]+")
SECRET_NAME = re.compile(
    r"(^|_)(PASSWORD|PASSWD|PGPASSWORD|SECRET|TOKEN|CREDENTIALS?|API_KEYS?|ADMIN_KEY|ACCESS_KEY|NOTICE_URL)(_KEY)?$"
)


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Return ``text`` with ``***`` for credentials: in URLs, ``password=``, headers, and values of secret variables."""
    text = USERINFO.sub(f"{HIDDEN}@", text)
    # Longest first: one secret may contain another.
    for secret in sorted(_secrets(os.environ if environment is None else environment), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return AUTHORIZATION.sub(rf"\1{HIDDEN}", ASSIGNMENT.sub(rf"\1{HIDDEN}", text))


def print_traceback() -> None:
    """Print the traceback of the current exception to stderr, redacted."""
    sys.stderr.write(redact(traceback.format_exc()))


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the secret values in ``environment``: values of variables with such names, and passwords in URLs."""
    for name, value in environment.items():
        if SECRET_NAME.search(name) and len(value) >= MIN_LENGTH:
            yield from (value, *(part.strip() for part in value.split(",") if len(part.strip()) >= MIN_LENGTH))
        password = _password(value) if "://" in value else None
        for secret in {password, unquote(password)} if password else ():
            if len(secret) >= MIN_LENGTH:
                yield secret


def _password(url: str) -> str | None:
    """Return the password of a URL, as an HTTP client would split it from the host."""
    try:
        return urlsplit(url).password
    except ValueError:  # not a URL, such as an unclosed bracket
        return None
