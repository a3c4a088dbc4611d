"""Limits, keys and permissions of the service."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bifocal.serving.limits import Limits

API_KEYS, ADMIN_KEY = "BIFOCAL_API_KEYS", "BIFOCAL_ADMIN_KEY"
"""Variables of the environment: keys of clients, separated by commas, and the key that may delete."""


@dataclass(frozen=True)
class Settings:
    """Settings of the service.

    Attributes:
        limits: of a sentence and an image file.
        max_results: results of one request.
        max_depth: results that can be reached by paging.
        max_words: sentences that one request adds and takes away, together.
        max_body_bytes: of a request in JSON.
        max_requests: requests at a time; further ones are answered with 429.
        max_uploads: image files at a time; they bound the memory, because each is held as a whole.
        requests_per_second: of one client, on average; 0 is no limit.
        body_seconds: longest time in which the body of a request arrives.
        api_keys: keys of which a client gives one; empty if the service needs no key.
        admin_key: key that may delete items; None if nobody may.
        origins: web origins whose pages may call the service, besides its own page.
        hosts: accepted values of the header Host without the port; "*" accepts any.
        log_queries: whether the log has the sentences of the requests.
        threads: requests that are computed at a time.
    """

    limits: Limits = field(default_factory=Limits)
    max_results: int = 100
    max_depth: int = 1000
    max_words: int = 16
    max_body_bytes: int = 65_536
    max_requests: int = 1024
    max_uploads: int = 16
    requests_per_second: float = 0.0
    body_seconds: float = 20.0
    api_keys: frozenset[str] = frozenset()
    admin_key: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ("*",)
    log_queries: bool = False
    threads: int = 2


def read_keys(environment: Mapping[str, str]) -> tuple[frozenset[str], str | None]:
    """Return the keys of clients and the key that may delete, from the environment.

    Example:
        >>> keys, admin = read_keys({"BIFOCAL_API_KEYS": "blue, green"})
        >>> sorted(keys), admin
        (['blue', 'green'], None)
    """
    keys = (key.strip() for key in environment.get(API_KEYS, "").split(","))
    return frozenset(key for key in keys if key), environment.get(ADMIN_KEY) or None
