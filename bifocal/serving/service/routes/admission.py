"""ASGI middleware in front of all routes: keys, limits, bodies, headers, metrics and the log."""

import asyncio
import hmac
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from bifocal.serving.service.observation import Metrics, log_request
from bifocal.serving.service.settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

API, UPLOADS, INFERENCE = "/api/v1/", "/api/v1/search/image", "/v2"
GUARDED = (API, "/metrics", f"{INFERENCE}/models")
"""Paths that need a key. The page has no data of its own, and probes of a cluster have no key."""
MAX_CLIENTS = 10_000
METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
logger = logging.getLogger(__name__)


class Admission:
    """Middleware that answers a request itself if it may not reach a route."""

    def __init__(self, app: App, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.active = self.uploads = 0
        self._rates = RateLimit(settings.requests_per_second)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, state = time.perf_counter(), 0, scope.setdefault("state", {})

        async def send_checked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(SECURITY)
            await send(message)

        upload = self._is_upload(scope)
        self.active, self.uploads = self.active + 1, self.uploads + upload
        self.metrics.active.set(self.active)
        try:
            self._check(scope, upload)
            await self.app(scope, await self._read_body(scope, receive, upload), send_checked)
        except HTTPException as refusal:
            await error_response(refusal.status_code, refusal.detail, refusal.headers)(scope, receive, send_checked)
        except _Disconnected:
            status = 499
        except Exception:
            logger.exception("a request failed")
            if status == 0:
                await error_response(500, "the service failed: see its log")(scope, receive, send_checked)
        finally:
            self.active, self.uploads = self.active - 1, self.uploads - upload
            self.metrics.active.set(self.active)
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in METHODS else "other"
            log_request(self.metrics, state, method, route, status, start)

    def _is_upload(self, scope: Message) -> bool:
        """Return whether the body may hold image files; a body of sentences is small."""
        if scope["path"].startswith(f"{INFERENCE}/models/"):
            declared = dict(scope["headers"]).get(b"content-length", b"")
            return scope["method"] == "POST" and not (
                declared.isdigit() and int(declared) <= self.settings.max_body_bytes
            )
        return bool(scope["path"] == UPLOADS)

    def _check(self, scope: Message, upload: bool) -> None:
        """Raise 400, 401, 403 or 429 for a request that may not go on."""
        headers = dict(scope["headers"])
        if "*" not in self.settings.hosts and _host(headers.get(b"host", b"")) not in self.settings.hosts:
            raise HTTPException(400, "the header Host names another host: see --allowed-host")
        if not scope["path"].startswith(GUARDED) or scope["method"] == "OPTIONS":
            return
        key = _bearer(headers.get(b"authorization", b""))
        admin = self.settings.admin_key is not None and hmac.compare_digest(key, self.settings.admin_key.encode())
        known = [hmac.compare_digest(key, valid.encode()) for valid in self.settings.api_keys]
        if known and not admin and not any(known):
            raise HTTPException(401, "send a key as 'Authorization: Bearer KEY'", {"www-authenticate": "Bearer"})
        if scope["method"] == "DELETE" and not admin:
            raise HTTPException(403, "deleting needs the admin key of the service")
        if self.active > self.settings.max_requests or (upload and self.uploads > self.settings.max_uploads):
            raise HTTPException(429, "too many requests at a time: try again", {"retry-after": "1"})
        wait = self._rates.wait(key.decode("latin-1") or str((scope.get("client") or ("",))[0]))
        if wait > 0:
            raise HTTPException(429, "too many requests per second: try again", {"retry-after": str(math.ceil(wait))})

    async def _read_body(self, scope: Message, receive: Receive, upload: bool) -> Receive:
        """Read the body, and return a ``receive`` that has it."""
        limit = self.settings.limits.image_bytes if upload else self.settings.max_body_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit():
            raise HTTPException(400, "the header Content-Length is not a number")
        too_large = HTTPException(413, f"the body has more than {limit} bytes")
        if limit and int(declared) > limit:
            raise too_large
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Disconnected
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if limit and len(body) > limit:
                        raise too_large
        except TimeoutError as error:
            raise HTTPException(408, f"the body did not arrive within {self.settings.body_seconds:g} s") from error
        bodies = [bytes(body)]

        async def receive_body() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await receive()  # waits until the client disconnects

        return receive_body


class RateLimit:
    """Token buckets of clients: ``rate`` requests per second on average, and twice as many at once."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, now: float | None = None) -> float:
        """Count a request; return 0 if it may go on, else the seconds until the next one may."""
        if not self.rate:
            return 0.0
        now, burst = time.monotonic() if now is None else now, max(1.0, 2 * self.rate)
        tokens, last = self._buckets.pop(client, (burst, now))
        tokens = min(burst, tokens + (now - last) * self.rate)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - allowed, now)
        while len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self.rate


class _Disconnected(Exception):
    """The client went away before its body was complete."""


def error_response(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer to a request that failed."""
    return JSONResponse({"error": reason}, status, headers)


def _host(value: bytes) -> str:
    """Return a header ``Host`` without its port, such as "localhost" or "[::1]"."""
    name, _, port = value.decode("latin-1").rpartition(":")
    return name if port.isdigit() and name else value.decode("latin-1")


def _bearer(value: bytes) -> bytes:
    scheme, _, key = value.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""
