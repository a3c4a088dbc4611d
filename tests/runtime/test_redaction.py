"""Credentials in messages: URLs, assignments, headers and secret variables are hidden; other text
stays."""

import json
import re
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.redaction import MIN_LENGTH, redact, without_credentials

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "MLFLOW_TRACKING_URI": "http://bifocal:S3%40cret@mlflow:5000",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG",
    "KFP_TOKEN": "eyJhbGciOi",
    "BIFOCAL_NOTICE_URL": "https://hooks.example/T000/B000/abc",
    "TOKENIZERS_PARALLELISM": "parallel",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
    "SHORT_TOKEN": "test",
    "PATH": "/usr/bin",
}


@pytest.mark.parametrize(
    "text",
    [
        "MLflow at postgresql+psycopg2://bifocal:S3cret@127.0.0.1:9/mlflow: refused",
        "git clone https://S3cret@github.example/team/repo.git failed",
        "http://user:p@S3cret@host/path",
        "could not connect: host=db password=S3cret user=x",
        '{"password": "S3cret"}',
        "GET https://s3/bucket/key?X-Amz-Signature=S3cret&x=1",
        "headers: {'Authorization': 'Basic S3cret=='}",
        "authorization: Bearer S3cret.part-2",
        "[(b'authorization', b'Basic S3cret==')]",
        '{"password": "words of \\"S3cret", "other": 1}',
        "nonnumeric port: 'S3%40cret@mlflow:5000'",
        "the password S3@cret was rejected",
        "signed with wJalrXUtnFEMI/K7MDENG",
        "token eyJhbGciOi expired",
        "no answer from https://hooks.example/T000/B000/abc",
        "postgresql://user:S3cret@def/cret@127.0.0.1:5433/db: no host 'def'",
        "GET https://store/blob?sig=S3cret&se=1",
        "headers x-api-key: S3cret",
        "Set-Cookie: session=S3cret; Path=/",
    ],
)
def test_credentials_are_hidden(text: str) -> None:
    redacted = redact(text, ENVIRONMENT)
    assert "***" in redacted
    for secret in ("S3cret", "cret", "wJalr", "eyJhb", "T000"):
        assert secret not in redacted


LETTERS = st.characters(
    min_codepoint=32, max_codepoint=0x17F, blacklist_characters="*\x7f", blacklist_categories=["C"]
)
PASSWORDS = st.text(LETTERS, min_size=6, max_size=24).filter(lambda text: text == text.strip())


@given(
    PASSWORDS,
    st.sampled_from(["KFP_TOKEN", "KFP_COOKIES", "MLFLOW_TRACKING_URI", "HF_ENDPOINT", "login"]),
)
def test_any_password_is_hidden_in_every_spelling(password: str, name: str) -> None:
    value = {"KFP_COOKIES": f"session={password}", "KFP_TOKEN": password}.get(name, "")
    if name == "MLFLOW_TRACKING_URI":
        value = f"http://user:{quote(password, safe='')}@mlflow:5000"
    elif (
        name == "HF_ENDPOINT"
    ):  # characters that belong quoted, and that a client cuts the address at
        password = password.replace("@", "")
        value = f"http://user:{password}@hub"
    elif name == "login":
        value = f"https://{quote(password, safe='')}@mlflow:5000"
    if len(password) < 6 or (name == "KFP_COOKIES" and ";" in password):
        return
    spellings = (
        password,
        repr(password),
        json.dumps([password]),
        quote(password, safe=""),
        escape(password),
        value,
    )
    for spelled in (*spellings, repr(OSError(f"no answer: {value!r}"))):
        redacted = redact(f"([{spelled}])", {name: value})
        assert "***" in redacted
        assert password not in redacted


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("SMTP_PASS", "S3cret-1", "S3cret-1"),
        ("my_password", "S3cret-1", "S3cret-1"),
        ("GIT_PRIVATE_KEY", "S3cret-1", "S3cret-1"),
        ("AZURE_STORAGE_CONNECTION_STRING", "S3cret-1", "S3cret-1"),
        ("SLACK_WEBHOOK_URL", "https://hooks.example/S3cret-1", "https://hooks.example/S3cret-1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a,x-key=S3cret-1", "S3cret-1"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20S3cret-1", "S3cret-1"),
        ("MLFLOW_TRACKING_URI", "postgresql://user:Abc@S3cret/ghi@127.0.0.1:5433/db", "S3cret"),
        ("MLFLOW_TRACKING_URI", "http://user:S3cret-1@host", b64encode(b"user:S3cret-1").decode()),
        *(
            (name, "S3cret-1", "S3cret-1")
            for name in ("DB_PWD", "GITHUB_PAT", "SENTRY_DSN", "JWT", "SSH_KEY")
        ),
        *(
            (name, "S3cret-1", "S3cret-1")
            for name in ("SIGNING_KEY", "REDIS_AUTH", "MYAPIKEY", "X_ACCESSKEY")
        ),
    ],
)
def test_values_of_secret_variables_are_hidden(name: str, value: str, secret: str) -> None:
    assert secret not in redact(f"{secret} and {value}", {name: value})


@given(st.text(LETTERS, min_size=6, max_size=12), st.text(LETTERS, min_size=6, max_size=12))
def test_a_password_with_an_at_sign_is_hidden_up_to_the_last_one(first: str, second: str) -> None:
    value = f"postgresql://user:{first}@{second}@host/db"
    parts = [part for part in re.split("[/?#@]", f"{first}@{second}") if part]
    if (
        first == first.strip()
        and second == second.strip()
        and min(map(len, parts), default=0) >= MIN_LENGTH
    ):
        text = redact(
            f"MLflow at {value}: failed to resolve host {second!r}", {"MLFLOW_TRACKING_URI": value}
        )
        assert first not in text.replace("MLflow at postgresql://", "")
        assert second not in text.replace("failed to resolve host", "")


@pytest.mark.parametrize(
    "kinds", ["USERNAME PASSWORD", "USER PASSWORD", "USER PWD", "username password"]
)
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
def test_an_account_of_two_variables_is_hidden_as_a_client_sends_it(
    kinds: str, encode: Callable[[bytes], bytes]
) -> None:
    user, password = (f"MLFLOW_TRACKING_{kind}" for kind in kinds.split())
    environment = {user: "pipe", password.upper(): "s3cr3t/P+w"}
    spelled = encode(b"pipe:s3cr3t/P+w").decode()
    assert redact(f"header b'Basic {spelled}'", environment) == "header b'Basic ***'"


@pytest.mark.parametrize(
    "text",
    [
        "X-Auth-Token: S3cret-1",
        "http://host/?access_key=S3cret-1",
        "AccountKey=S3cret-1;X=1",
        "Bearer S3cret-1",
        "-----BEGIN RSA PRIVATE KEY-----\nS3cret-1\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_credentials_that_no_variable_has_are_hidden(text: str) -> None:
    assert "S3cret" not in redact(text, {})


@given(
    user=st.sampled_from(["", "ci", "oauth2"]),
    password=st.text(st.sampled_from("S3cr:/@?#"), min_size=1).filter(
        lambda text: not re.match(r"\d+([/?#]|$)", text)  # a port
    ),
    scheme=st.sampled_from(["https", "http", "HTTPS", "ssh"]),
    port=st.sampled_from(["", ":8443"]),
)
def test_an_address_of_a_repository_has_no_credentials(
    user: str, password: str, scheme: str, port: str
) -> None:
    address = f"{scheme}://git.example{port}/team/repo.git"
    assert without_credentials(address) == address
    given_address = address.replace("://", f"://{user}:{password}@")
    assert without_credentials(given_address) == address


@pytest.mark.parametrize("secret", ["a/b+c=d?e", "päss/wört"])
def test_a_secret_is_hidden_in_further_spellings(secret: str) -> None:
    quoted = quote(secret, safe="")
    for spelled in (
        quoted.lower(),
        quoted.replace("%2F", "%2f"),
        quote(quoted.replace("%2F", "%2f"), safe=""),
        quote(quote(quote(quoted, safe=""), safe=""), safe=""),
        urlsafe_b64encode(secret.encode()).decode(),
        secret.encode().hex(),
        quote(quoted, safe=""),
        repr(secret.encode()),
        b64encode(secret.encode()).decode(),
    ):
        assert spelled not in redact(f"<{spelled}>", {"X_TOKEN": secret})


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/key does not exist",
        "unknown token: dog; a basic embedding of a test, in /usr/bin, read by parallel workers",
        "http://mlflow:5000/health answers",
        "models:/bifocal@champion",
        "see /var/run/token",
        "https://example.org/@user/page, s3://bucket/a@b.jpg; expected KEY=VALUE",
    ],
)
def test_text_without_credentials_is_unchanged(text: str) -> None:
    assert redact(text, ENVIRONMENT) == text


@pytest.mark.parametrize("error", ["OSError", "RuntimeError"])
def test_command_line_prints_neither_errors_nor_tracebacks_with_credentials(error: str) -> None:
    program = (
        "import click\nfrom runtime.process import run\n"
        f"@click.command()\ndef main(): raise {error}('no answer from http://me:S3cret@host')\n"
        "run(main, 'demo')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no answer from http://***@host" in done.stderr
    assert "S3cret" not in done.stdout + done.stderr


def test_keys_of_the_service_are_hidden() -> None:
    environment = {
        "BIFOCAL_API_KEYS": "first-key, second-key",
        "BIFOCAL_ADMIN_KEY": "the-admin-key",
    }
    for key in ("first-key", "second-key", "the-admin-key"):
        assert redact(f"wrong key {key}!", environment) == "wrong key ***!"
