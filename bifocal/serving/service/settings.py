"""Limits, keys and permissions of the service."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bifocal.onnx.limits import Limits

API_KEYS, ADMIN_KEY = "BIFOCAL_API_KEYS", "BIFOCAL_ADMIN_KEY"
"""Variables of the environment: keys of clients, separated by commas, and the key that may
delete."""
MIN_KEY = 22
"""Minimum number of characters of a key, 128 bits in base64: there is no other limit on wrong
keys."""


@dataclass(frozen=True)
class Settings:
    """Settings of the service."""

    limits: Limits = field(default_factory=Limits)
    max_results: int = 100  # of a request
    max_depth: int = 1000  # results that can be reached by paging
    max_words: int = 16  # sentences that one request adds and takes away
    max_body_bytes: int = 65_536  # of a request in JSON
    max_requests: int = 1024  # at a time; further ones are answered with 429
    max_uploads: int = 16  # image files at a time: each is held in memory
    max_requests_of_address: int = 256  # at a time
    max_uploads_of_address: int = 8
    requests_per_second: float = (
        0.0  # of a key, or of an address without a valid one; 0 means no limit
    )
    body_seconds: float = (
        20.0  # in which the body of a request arrives, and a part of an answer is taken
    )
    api_keys: frozenset[str] = frozenset()  # empty if the service needs no key
    admin_key: str | None = None  # may delete and correct items; None if nobody may
    corrections: Path | None = None  # file of what people say about results; None keeps none
    origins: tuple[str, ...] = ()  # web origins whose pages may call the service
    hosts: tuple[str, ...] = ("*",)  # accepted values of the header Host without the port
    addresses: bool = (
        False  # whether the header Host may be any IP address: no other site has a name for it
    )
    log_queries: bool = False
    open_metrics: bool = (
        False  # whether /metrics needs no key: it names models, and has no query and no item
    )
    originals: bool = False  # send image files as they are: their EXIF data may name a place
    threads: int = 2  # requests that are computed at a time
    decoders: int = (
        1  # processes that decode small files of clients, large ones, and those of the collection
    )


def read_keys(environment: Mapping[str, str]) -> tuple[frozenset[str], str | None]:
    """Return the keys of clients and the key that may delete, from the environment.

    Raises:
        ValueError: a variable is set, but has no key: a service would be open by mistake; or a key
            can be guessed.
    """
    admin = _keys(environment, ADMIN_KEY, "\n")
    return _keys(environment, API_KEYS, ","), next(iter(admin), None)


def _keys(environment: Mapping[str, str], name: str, separator: str) -> frozenset[str]:
    keys = frozenset(map(str.strip, environment.get(name, "").split(separator))) - {"", ","}
    if name in environment and not keys:
        raise ValueError(f"{name} is set but has no key: set one, or unset it")
    for key in keys:
        if len(key) < MIN_KEY:
            raise ValueError(
                f"{name} has a key of {len(key)} characters, expected at least {MIN_KEY} random "
                "ones, such as those of: openssl rand -hex 24"
            )
    return keys
