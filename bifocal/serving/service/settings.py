"""Limits, keys and permissions of the service."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bifocal.serving.limits import Limits

API_KEYS, ADMIN_KEY = "BIFOCAL_API_KEYS", "BIFOCAL_ADMIN_KEY"
"""Variables of the environment: keys of clients, separated by commas, and the key that may delete."""


@dataclass(frozen=True)
class Settings:
    """Settings of the service."""

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
