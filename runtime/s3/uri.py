"""Addresses on S3, ``s3://bucket/key``, and the paths of their local copies."""

from pathlib import Path

from runtime.s3.cache import cache_folder
from runtime.s3.errors import StorageError

SCHEME = "s3://"


def parse_s3_uri(uri: str) -> tuple[str, str]:
    """Return bucket and key."""
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not bucket or not key.strip("/"):
        raise StorageError(f"{uri!r}: expected s3://bucket/key")
    check_relative(bucket, uri)
    return bucket, check_relative(key.strip("/"), uri)


def check_relative(name: str, address: str) -> str:
    """Return ``name`` if it stays below any folder; S3 keys may be ``../x``, ``/x``, ``..\\x`` or ``a//b``."""
    if "\\" in name or "\0" in name or {"", ".", ".."} & set(name.split("/")):
        raise StorageError(
            f"{address}: the key {name!r} is unsafe as a path of a file; expected names between single slashes, "
            "without '..', '.' and backslashes: rename the object"
        )
    return name


def is_remote(path: str) -> bool:
    """Whether ``path`` is an address on S3."""
    return path.startswith(SCHEME)


def cache_path(uri: str) -> Path:
    """Path of the local copy of ``uri``."""
    bucket, key = parse_s3_uri(uri)
    return cache_folder() / bucket / key
