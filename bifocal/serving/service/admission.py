"""ASGI middleware in front of all routes: who may call them, how often, and with what bodies;
headers and the log."""

import asyncio
import hmac
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from bifocal.serving.service.bodies import (
    API,
    BODIES,
    INFERENCE,
    Body,
    Disconnected,
    Message,
    Places,
    Receive,
)
from bifocal.serving.service.observation import Metrics, log_request
from bifocal.serving.service.settings import Settings
from bifocal.serving.service.turns import Client, Turns, client_of_request

Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
    "'self' data: blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "server": "bifocal",
    "x-content-type-options": "nosniff",
}
CLIENT = "bifocal-client"
"""Header with a random text by which a client is known again; the page makes one for each tab."""
MAX_CHARACTERS = 200
METRICS, CORRECTION = "/metrics", "/api/v1/correction"
GUARDED = (API, METRICS, f"{INFERENCE}/models")
"""Paths that need a key. The page has no data of its own, and probes of a cluster have no key."""
PROBES = ("/healthz", "/readyz", f"{INFERENCE}/health/live", f"{INFERENCE}/health/ready")
IN_THREADS = (f"{API}thumbnail", f"{API}original")
"""Paths without a body whose answers are computed or read in threads."""
SENT_BYTES = 2**18
"""Bytes of an answer that are sent at a time: a client that does not read keeps no more of them in
memory."""
SINGLE = (b"host", b"authorization", b"origin", b"sec-fetch-site")
"""Headers that a request may have once: a proxy may read another one of two."""
MAX_QUERY = 8192
"""Bytes of the query of an address: the event loop decodes it."""
GUESSES, GUESSES_PER_SECOND = 20, 0.2
"""Wrong keys of an address: at once, and on average."""
MAX_CLIENTS = 10_000
logger = logging.getLogger(__name__)


class Admission:
    """Middleware that answers a request itself if it may not reach a route."""

    def __init__(self, app: App, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self._access = Access(settings)
        self._requests = Places(settings.max_requests, settings.max_requests_of_address)
        self._uploads = Places(settings.max_uploads, settings.max_uploads_of_address)
        self._loop_turns = Turns(1)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, state = time.perf_counter(), 0, scope.setdefault("state", {})
        scope[
            "extensions"
        ] = {}  # without the server's own sending of files: a request counts until its file is sent
        body = Body(scope, network_of(str((scope.get("client") or ("",))[0])), self.settings)

        async def send_checked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update({**SECURITY, "connection": "close"} if body.unread else SECURITY)
            content = message.get("body", b"")
            starts = range(0, len(content), SENT_BYTES) or (0,)
            try:
                for place in starts:
                    if len(starts) > 1:
                        more = place != starts[-1] or message.get("more_body", False)
                        message = {
                            **message,
                            "body": content[place : place + SENT_BYTES],
                            "more_body": more,
                        }
                    async with asyncio.timeout(self.settings.body_seconds):
                        await send(message)
            except TimeoutError as error:
                raise Disconnected from error  # a client that does not read may not hold an answer

        try:
            payer = self._access.check(scope, body.address)
            named = Headers(scope=scope).get(CLIENT, "")[:MAX_CHARACTERS]
            client_of_request.set(Client(payer, named or payer, []))
            turn = self._loop_turns.turn() if in_loop(scope) else nullcontext()
            places = nullcontext() if scope["path"] in PROBES else self._requests.take(body)
            with places, self._uploads.take(body) if body.is_upload else nullcontext():
                self.metrics.active.set(self._requests.taken.total())
                received = await body.read(receive)
                async with turn:
                    await self.app(scope, received, send_checked)
        except HTTPException as refusal:
            await error_response(refusal.status_code, refusal.detail, refusal.headers)(
                scope, receive, send_checked
            )
        except Disconnected:
            if status == 0:  # the server ends a damaged body like a lost connection
                await error_response(400, "the body is damaged, or was cut")(
                    scope, receive, send_checked
                )
            status = 499
        except BaseException as error:  # also a panic of a library in Rust
            ends = isinstance(error, asyncio.CancelledError)
            if not ends:
                logger.exception("a request failed")
            if status == 0:
                reason = "the service ends" if ends else "the service failed: see its log"
                await error_response(503 if ends else 500, reason)(scope, receive, send_checked)
        finally:
            self.metrics.active.set(self._requests.taken.total())
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in METHODS else "other"
            log_request(self.metrics, state, method, route, status, start)
        await body.drain(receive)


def in_loop(scope: Message) -> bool:
    """Return whether a request is answered in the event loop: one of each client at a time, or
    many of them would delay all others."""
    path = scope["path"]
    return not (path in PROBES or BODIES.fullmatch(path) or path.startswith(IN_THREADS))


def error_response(
    status: int, reason: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer to a request that failed."""
    return JSONResponse({"error": reason}, status, headers)


class Access:
    """Rules of a service's settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._rates = RateLimit(settings.requests_per_second)
        self._guesses = RateLimit(GUESSES_PER_SECOND, GUESSES)

    def check(self, scope: Message, address: str) -> str:
        """Return the key of the client, or else its address; raise 400, 401, 403 or 429 if it may
        not go on."""
        settings, headers = self.settings, dict(scope["headers"])
        names = [name for name, _ in scope["headers"]]
        for name in SINGLE:
            if names.count(name) > 1:
                raise HTTPException(400, f"the header {name.decode()} is there twice: send one")
        if len(scope["query_string"]) > MAX_QUERY:
            raise HTTPException(414, f"the address has a query of more than {MAX_QUERY} bytes")
        self._check_host(_name(headers.get(b"host", b"").decode("latin-1")))
        probe = scope["path"].startswith(f"{INFERENCE}/models/") and scope["path"].endswith(
            "/ready"
        )
        is_open = probe or (settings.open_metrics and scope["path"] == METRICS)
        if is_open or not scope["path"].startswith(GUARDED) or scope["method"] == "OPTIONS":
            return address
        self._check_origin(headers)
        key = _bearer(headers.get(b"authorization", b""))
        admin = settings.admin_key is not None and hmac.compare_digest(
            key, settings.admin_key.encode()
        )
        known = [hmac.compare_digest(key, valid.encode()) for valid in settings.api_keys]
        is_valid = admin or any(known)
        # Only wrong keys wait: others may share their address, behind a proxy or in one office.
        if not is_valid and (wait := self._guesses.wait(address, cost=0)) > 0:
            raise HTTPException(
                429, "too many wrong keys: try again", {"retry-after": str(math.ceil(wait))}
            )
        # An invented key has the rate of its address, and counts before it is refused.
        client = key.decode("latin-1") if is_valid else address
        if (wait := self._rates.wait(client)) > 0:
            raise HTTPException(
                429,
                "too many requests per second: try again",
                {"retry-after": str(math.ceil(wait))},
            )
        deletes, corrects = scope["method"] == "DELETE", scope["path"] == CORRECTION
        if key and not is_valid and (known or deletes or corrects):
            self._guesses.wait(address)
        if known and not is_valid:
            raise HTTPException(
                401, "send a key as 'Authorization: Bearer KEY'", {"www-authenticate": "Bearer"}
            )
        if corrects and not admin:
            raise HTTPException(401, "correcting needs the admin key of the service")
        if deletes and not admin:
            raise HTTPException(403, "deleting needs the admin key of the service")
        return client

    def _check_host(self, name: str) -> None:
        settings = self.settings
        if (
            "*" in settings.hosts
            or name in settings.hosts
            or (settings.addresses and parse_address(name))
        ):
            return
        raise HTTPException(400, "the header Host names another host: see --allowed-host")

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse the requests that a browser makes for a page of another site, unless its origin is
        listed."""
        origin, site = (
            headers.get(name, b"").decode("latin-1") for name in (b"origin", b"sec-fetch-site")
        )
        if "*" in self.settings.origins or origin in self.settings.origins:
            return
        host = headers.get(b"host", b"").decode("latin-1")
        try:
            same = (
                site in ("same-origin", "none")
                if site
                else not origin or urlsplit(origin).netloc == host
            )
        except ValueError:  # no URL, such as "http://["
            same = False
        if not same:
            raise HTTPException(
                403, "a page of another site may not call this service: see --cors-origin"
            )


class RateLimit:
    """Token buckets of clients: ``rate`` requests per second on average, ``burst`` at once, else
    twice as many."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self.rate, self.burst = rate, max(1.0, 2 * rate) if burst is None else burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, now: float | None = None, cost: int = 1) -> float:
        """Count ``cost`` requests; return 0 if they may go on, else the seconds until the next one
        may."""
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


def _name(host: str) -> str:
    """Return a header ``Host`` without its port, such as "localhost" or "[::1]"."""
    name, _, port = host.rpartition(":")
    return name if port.isascii() and port.isdecimal() and name else host


def _bearer(value: bytes) -> bytes:
    scheme, _, key = value.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""


def network_of(address: str) -> str:
    """Return the address of a client as limits count it: without a port, which some proxies add,
    and for IPv6 a network of 64 bits, which one client has whole. All other texts are one client.
    """
    found = parse_address(address) or parse_address(_name(address))
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((found, 64), strict=False))
    return str(found or "")


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address, or None for another text."""
    try:
        return ip_address(text.strip("[]"))
    except ValueError:
        return None
