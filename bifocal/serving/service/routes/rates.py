"""Rates of clients: token buckets."""

import time
from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

MAX_CLIENTS = 10_000


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
