"""The HTTP client of all requests: an answer has a limit of time and of bytes, and credentials
stay with their host."""

import time
from typing import Any

import requests
from urllib3.exceptions import HTTPError

SECONDS = 20.0
MAX_BYTES = 16 << 20
REDIRECTS = 5


class HTTPStatusError(OSError):
    """A server answered with another status than success."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"status {status} {reason}".strip())
        self.status = status


def request(address: str, *, token: str | None = None, body: Any = None) -> bytes:
    """Return the answer to a GET, or to a POST of ``body`` as JSON, which follows no redirect.

    Raises:
        OSError: no complete answer in time, or another status than success. No message names the
            address: it may be a secret.
        ValueError: ``address`` is not an address of HTTP.
    """

    def log_in(prepared: Any) -> Any:
        # requests drops this header at a redirect to another host, and no .netrc replaces it.
        prepared.headers["Authorization"] = f"Bearer {token}"
        return prepared

    end = time.monotonic() + SECONDS
    content = bytearray()
    try:
        with requests.Session() as session:
            session.max_redirects = REDIRECTS
            with session.request(
                "GET" if body is None else "POST",
                address,
                json=body,
                auth=log_in if token else None,
                allow_redirects=body is None,
                stream=True,
                timeout=SECONDS,
            ) as answer:
                if not 200 <= answer.status_code < 300:
                    raise HTTPStatusError(answer.status_code, answer.reason)
                while chunk := answer.raw.read1(1 << 16, decode_content=True):
                    content += chunk
                    if len(content) > MAX_BYTES:
                        raise OSError(f"the answer has more than {MAX_BYTES >> 20} MiB")
                    if time.monotonic() > end:
                        raise OSError(f"no complete answer within {SECONDS:g} s")
    except ValueError as error:  # of requests: no scheme, another scheme, no host
        raise ValueError("not an address that starts with http:// or https://") from error
    except (requests.RequestException, HTTPError) as error:
        raise OSError(_cause(error)) from error
    return bytes(content)


def _cause(error: BaseException) -> str:
    """Text of the first error, such as "connection refused": the later ones repeat the address."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error) or type(error).__name__
