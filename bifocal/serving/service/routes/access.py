"""Who may call a route: names of the service, origins of pages, keys, and rates of clients."""

import hmac
import math
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from bifocal.serving.service.routes.rates import RateLimit, network_of, parse_address
from bifocal.serving.service.settings import Settings

API, UPLOADS, INFERENCE, METRICS = "/api/v1/", "/api/v1/search/image", "/v2", "/metrics"
GUARDED = (API, METRICS, f"{INFERENCE}/models")
"""Paths that need a key. The page has no data of its own, and probes of a cluster have no key."""
GUESSES, GUESSES_PER_SECOND = 20, 0.2
"""Wrong keys of an address: at once, and on average."""


class Access:
    """Rules of a service's settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._rates = RateLimit(settings.requests_per_second)
        self._guesses = RateLimit(GUESSES_PER_SECOND, GUESSES)

    def check(self, scope: MutableMapping[str, Any]) -> None:
        """Raise 400, 401, 403 or 429 for a request that may not go on."""
        settings, headers = self.settings, dict(scope["headers"])
        self._check_host(_name(headers.get(b"host", b"").decode("latin-1")))
        probe = scope["path"].startswith(f"{INFERENCE}/models/") and scope["path"].endswith("/ready")
        is_open = probe or (settings.open_metrics and scope["path"] == METRICS)
        if is_open or not scope["path"].startswith(GUARDED) or scope["method"] == "OPTIONS":
            return
        self._check_origin(headers)
        address, key = address_of(scope), _bearer(headers.get(b"authorization", b""))
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
