"""Redaction of credentials in messages: every error, log line and check passes through
``redact``."""

import json
import os
import re
import sys
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from html import escape
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
MIN_LENGTH = 6
"""Shorter values of the environment are not searched for in messages: they would match parts of
words."""
USERINFO = re.compile(r"(?<=://)[^\s/?#'\"]+@(?:[^\s'\"]*@)?")
"""Up to the last "@": a password may have characters that belong quoted."""
_NAMES = (
    r"(?:password|passwd|pwd|secret|token|access_token|(?:api|access|account)_?key"
    r"|x-amz-(?:signature|credential|security-token))"
)
ASSIGNMENT = re.compile(
    rf"(?i)(\b{_NAMES}=|[?&](?:key|sig|signature)=|[\"']{_NAMES}[\"']\s*:\s*(?P<quote>[\"']))"
    r"(?(quote)(?:\\.|(?!(?P=quote))[^\\])+|[^\s&\"',;]+)"
)
AUTHORIZATION = re.compile(
    r"(?i)(\bauthorization\b[\"']?\s*[:=,]\s*b?[\"']?(?:bearer|basic)\s+|\bbearer\s+)[\w.~+/=-]+"
)
HEADER = re.compile(
    r"(?i)(\b(?:x-[\w-]*(?:key|token)|(?:set-)?cookie)\b[\"']?\s*[:=]\s*[\"']?)[^\r\n\"']+"
)
PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|$)", re.DOTALL)
SECRET_NAME = re.compile(
    r"(?i)((^|_)(PASS|PASSWORD|PASSWD|PASSPHRASE|PGPASSWORD|SECRET|TOKEN|CREDENTIALS?|COOKIES?"
    r"|(ADMIN|ACCESS|ACCOUNT|ENCRYPTION|PRIVATE|SIGNING|SSH)_?KEY|CONNECTION_STRING|\w*WEBHOOK\w*"
    r"|NOTICE_URL|SLACK_URL|OTLP_(\w+_)?HEADERS|AUTH|BEARER|DSN|JWT|PAT|SAS)|_PWD|API_?KEYS?)(_KEY)?$"
)
USER_NAME = re.compile(r"(?i)(?<=_)USER(NAME)?$")


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Return ``text`` with ``***`` for credentials: in URLs, ``password=``, headers, and values of
    secret variables."""
    secrets = _secrets(os.environ if environment is None else environment)
    spelled = {
        form
        for secret in secrets
        if len(secret.strip()) >= MIN_LENGTH
        for form in _forms(secret.strip())
    }
    if spelled:
        # Longest first: one secret may contain another.
        text = re.sub("|".join(map(_pattern, sorted(spelled, key=len, reverse=True))), HIDDEN, text)
    for pattern in (ASSIGNMENT, AUTHORIZATION, HEADER, PRIVATE_KEY):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return USERINFO.sub(f"{HIDDEN}@", text)


def without_credentials(address: str) -> str:
    """Return an address without the password or the token before its host.

    >>> without_credentials("https://ci:token@git.example/a.git")
    'https://git.example/a.git'
    >>> without_credentials("ssh://git@git.example/a.git")
    'ssh://git@git.example/a.git'
    """
    scheme, separator, rest = address.partition("://")
    user = "[^/?#]*" if scheme.lower().startswith("http") else "[^/?#@]*:[^/?#]*"
    # A password may have characters that belong quoted: a port has digits only.
    rest = re.sub(rf"^(?:[^/?#@]*:(?!\d+(?:[/?#]|$))\S*|{user})@", "", rest)
    return f"{scheme}{separator}{rest}"


def print_traceback() -> None:
    """Print the traceback of the current exception to stderr, redacted."""
    sys.stderr.write(redact(traceback.format_exc()))


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the secret values in ``environment``: values of variables with such names, and
    passwords in URLs."""
    for name, value in environment.items():
        for kind in ("PASSWORD", "PASSWD", "PASS", "PWD") if USER_NAME.search(name) else ():
            password = environment.get(USER_NAME.sub(kind, name.upper()))
            for encode in (b64encode, urlsafe_b64encode) if password else ():
                yield encode(f"{value}:{password}".encode()).decode()
        if SECRET_NAME.search(name):
            yield from (value, *re.split("[,;]", value))  # keys of several clients
            if re.search("(?i)COOKIE|HEADERS", name):
                for entry in re.split("[,;]", unquote(value)):
                    yield from (entry.partition("=")[2], entry.split(" ")[-1])
        if "://" in value:
            for password in _passwords(value):
                yield from (password, unquote(password), unquote(password).rpartition("@")[2])


def _passwords(url: str) -> Iterator[str]:
    """Yield the password of a URL, or the user of an HTTP address without one: a token."""
    rest = url.partition("://")[2]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    # A password may have characters that belong quoted.
    for text in {authority if "@" in authority else rest, rest}:
        userinfo = text.rpartition("@")[0]
        user, _, password = userinfo.partition(":")
        yield password or (user if url.startswith("http") and "@" in authority else "")
        yield from re.split("[/?#@]", password)
        yield b64encode(unquote(userinfo).encode()).decode() if password else ""


def _forms(secret: str) -> set[str]:
    """Return the spellings of a secret in texts, addresses, JSON and HTML."""
    quoted = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    texts = {
        secret,
        escape(secret),
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        repr(secret.encode())[2:-1],
    }
    data = secret.encode()
    return quoted | texts | {b64encode(data).decode(), urlsafe_b64encode(data).decode(), data.hex()}


def _pattern(form: str) -> str:
    """Return the pattern of a spelling, also in a ``repr`` within others: with backslashes before
    quotes; and with percent codes in both cases, also quoted again."""
    letters = {"\\": r"\\+", "'": r"\\*'", '"': r'\\*"'}
    parts = re.split("(%[0-9A-Fa-f]{2})", form)
    return "".join(
        f"%(?:25)*(?i:{part[1:]})"
        if number % 2
        else "".join(letters.get(letter, re.escape(letter)) for letter in part)
        for number, part in enumerate(parts)
    )
