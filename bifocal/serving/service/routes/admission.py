"""ASGI middleware in front of all routes: access, counts, bodies, headers, metrics and the log."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from bifocal.serving.service.observation import Metrics, log_request
from bifocal.serving.service.routes.access import GUARDED, INFERENCE, UPLOADS, Access, address_of
from bifocal.serving.service.settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

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
        self._access = Access(settings)
        self._active: Counter[str] = Counter()
        self._uploads: Counter[str] = Counter()  # with image files, by address

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
            try:
                async with asyncio.timeout(self.settings.body_seconds):
                    await send(message)
            except TimeoutError as error:
                raise _Disconnected from error  # a client that does not read may not hold an answer

        upload, address = self._is_upload(scope), address_of(scope)
        self._count(address, 1, upload)
        try:
            self._access.check(scope)
            self._check_count(scope, address)
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
            self._count(address, -1, -upload)
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in METHODS else "other"
            log_request(self.metrics, state, method, route, status, start)

    def _count(self, address: str, request: int, upload: int) -> None:
        for counts, change in ((self._active, request), (self._uploads, upload)):
            counts[address] += change
            if not counts[address]:
                del counts[address]
        self.metrics.active.set(self._active.total())

    def _is_upload(self, scope: Message) -> bool:
        """Return whether the body may hold image files; a body of sentences is small."""
        if scope["path"].startswith(f"{INFERENCE}/models/"):
            declared = dict(scope["headers"]).get(b"content-length", b"")
            return scope["method"] == "POST" and not (
                declared.isdigit() and int(declared) <= self.settings.max_body_bytes
            )
        return bool(scope["path"] == UPLOADS)

    def _check_count(self, scope: Message, address: str) -> None:
        """Raise 429 if too many requests are being answered, of all clients or of an address."""
        active, uploads, settings = self._active[address], self._uploads[address], self.settings
        if scope["path"].startswith(GUARDED) and (
            self._active.total() > settings.max_requests
            or self._uploads.total() > settings.max_uploads
            or active > settings.max_requests_of_address
            or uploads > settings.max_uploads_of_address
        ):
            raise HTTPException(429, "too many requests at a time: try again", {"retry-after": "1"})

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


class _Disconnected(Exception):
    """The client went away before its body was complete."""


def error_response(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer to a request that failed."""
    return JSONResponse({"error": reason}, status, headers)
