"""Addresses on S3, ``s3://bucket/key``, and the paths of their local copies."""

from pathlib import Path

from runtime.s3.errors import StorageError

SCHEME = "s3://"
CACHE = Path(".cache/s3")


def parse_s3_uri(uri: str) -> tuple[str, str]:
    """Return bucket and key.

    Raises:
        StorageError: ``uri`` has another scheme, no bucket or no key.

    Example:
        >>> parse_s3_uri("s3://bucket/runs/1/")
        ('bucket', 'runs/1')
    """
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not bucket or not key.strip("/"):
        raise StorageError(f"{uri!r}: expected s3://bucket/key")
    return bucket, key.strip("/")


def is_remote(path: str) -> bool:
    """Whether ``path`` is an address on S3."""
    return path.startswith(SCHEME)


def cache_path(uri: str) -> Path:
    """Path of the local copy of ``uri``."""
    bucket, key = parse_s3_uri(uri)
    return CACHE / bucket / key
