"""ASGI middleware in front of all routes: who may call them, how often, and with what bodies; headers and the log."""

import asyncio
import hmac
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from bifocal.serving.service.observation import Metrics, log_request
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
API, UPLOADS, INFERENCE, METRICS = "/api/v1/", "/api/v1/search/image", "/v2", "/metrics"
GUARDED = (API, METRICS, f"{INFERENCE}/models")
"""Paths that need a key. The page has no data of its own, and probes of a cluster have no key."""
GUESSES, GUESSES_PER_SECOND = 20, 0.2
"""Wrong keys of an address: at once, and on average."""
MAX_CLIENTS = 10_000
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
            self._access.check(scope, address)
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


class Access:
    """Rules of a service's settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._rates = RateLimit(settings.requests_per_second)
        self._guesses = RateLimit(GUESSES_PER_SECOND, GUESSES)

    def check(self, scope: Message, address: str) -> None:
        """Raise 400, 401, 403 or 429 for a request of an address that may not go on."""
        settings, headers = self.settings, dict(scope["headers"])
        self._check_host(_name(headers.get(b"host", b"").decode("latin-1")))
        probe = scope["path"].startswith(f"{INFERENCE}/models/") and scope["path"].endswith("/ready")
        is_open = probe or (settings.open_metrics and scope["path"] == METRICS)
        if is_open or not scope["path"].startswith(GUARDED) or scope["method"] == "OPTIONS":
            return
        self._check_origin(headers)
        key = _bearer(headers.get(b"authorization", b""))
        if (wait := self._guesses.wait(address, cost=0)) > 0:
            raise HTTPException(429, "too many wrong keys: try again", {"retry-after": str(math.ceil(wait))})
        admin = settings.admin_key is not None and hmac.compare_digest(key, settings.admin_key.encode())
        known = [hmac.compare_digest(key, valid.encode()) for valid in settings.api_keys]
        # An invented key has the rate of its address, and counts before it is refused.
        if (wait := self._rates.wait(key.decode("latin-1") if admin or any(known) else address)) > 0:
            raise HTTPException(429, "too many requests per second: try again", {"retry-after": str(math.ceil(wait))})
        deletes = scope["method"] == "DELETE"
        if key and not admin and not any(known) and (known or deletes):
            self._guesses.wait(address)
        if known and not admin and not any(known):
            raise HTTPException(401, "send a key as 'Authorization: Bearer KEY'", {"www-authenticate": "Bearer"})
        if deletes and not admin:
            raise HTTPException(403, "deleting needs the admin key of the service")

    def _check_host(self, name: str) -> None:
        settings = self.settings
        if "*" in settings.hosts or name in settings.hosts or (settings.addresses and parse_address(name)):
            return
        raise HTTPException(400, "the header Host names another host: see --allowed-host")

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse the requests that a browser makes for a page of another site, unless its origin is listed."""
        origin, site = (headers.get(name, b"").decode("latin-1") for name in (b"origin", b"sec-fetch-site"))
        if "*" in self.settings.origins or origin in self.settings.origins:
            return
        host = headers.get(b"host", b"").decode("latin-1")
        same = site in ("same-origin", "none") if site else not origin or urlsplit(origin).netloc == host
        if not same:
            raise HTTPException(403, "a page of another site may not call this service: see --cors-origin")


class RateLimit:
    """Token buckets of clients: ``rate`` requests per second on average, ``burst`` at once, else twice as many."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self.rate, self.burst = rate, max(1.0, 2 * rate) if burst is None else burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, now: float | None = None, cost: int = 1) -> float:
        """Count ``cost`` requests; return 0 if they may go on, else the seconds until the next one may."""
        if not self.rate:
            return 0.0
        now = time.monotonic() if now is None else now
        tokens, last = self._buckets.pop(client, (self.burst, now))
        tokens = min(self.burst, tokens + (now - last) * self.rate)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - allowed * cost, now)
        while len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self.rate


def address_of(scope: Mapping[str, Any]) -> str:
    """Return the address of a client, as limits count it."""
    return network_of(str((scope.get("client") or ("",))[0]))


def _name(host: str) -> str:
    """Return a header ``Host`` without its port, such as "localhost" or "[::1]"."""
    name, _, port = host.rpartition(":")
    return name if port.isdigit() and name else host


def _bearer(value: bytes) -> bytes:
    scheme, _, key = value.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""


def network_of(address: str) -> str:
    """Return the address of a client as limits count it: a network of 64 bits for IPv6, which one client has whole."""
    found = parse_address(address)
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((found, 64), strict=False))
    return address


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address, or None for another text."""
    try:
        return ip_address(text.strip("[]"))
    except ValueError:
        return None
