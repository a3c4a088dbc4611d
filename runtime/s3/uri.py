"""Addresses on S3, ``s3://bucket/key``, the folder of their local copies, and the one error of
every failure."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bifocal.durable.cached import cache_folder
from runtime.redaction import redact

SCHEME = "s3://"
COPIES = "s3"
"""Folder of the cache with copies of files, as ``bucket/key``."""
MAX_NAME_BYTES = 255
"""Of a file, on Linux and macOS."""


class StorageError(OSError):
    """A request to S3 failed after every attempt, or a file has other contents than were
    uploaded."""


@contextmanager
def wrap_s3_errors(address: str) -> Iterator[None]:
    """Raise boto3's errors as StorageError with the ``address`` that was requested."""
    # Commands on local folders parse addresses without boto3.
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, Boto3Error) as error:
        # The address of the endpoint may have a password.
        raise StorageError(
            redact(
                f"{address}: {error}. Transferred files are kept; the next attempt resumes. "
                "'python -m pipelines doctor' checks endpoint and keys"
            )
        ) from error


def parse_s3_uri(uri: str) -> tuple[str, str]:
    """Return bucket and key."""
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not bucket or not key.strip("/"):
        raise StorageError(f"{uri!r}: expected s3://bucket/key")
    check_relative(bucket, uri)
    return bucket, check_relative(key.strip("/"), uri)


def check_relative(name: str, address: str) -> str:
    """Return ``name`` if it stays below any folder; S3 keys may be ``../x``, ``/x``, ``..\\x`` or
    ``a//b``."""
    parts = name.split("/")
    if (
        "\\" in name
        or "\0" in name
        or {"", ".", ".."} & set(parts)
        or max(len(os.fsencode(part)) for part in parts) > MAX_NAME_BYTES
    ):
        raise StorageError(
            f"{address}: the key {name!r} is unsafe as a path of a file; expected names "
            f"of at most {MAX_NAME_BYTES} bytes between single slashes, without '..', '.' and "
            "backslashes: rename the object"
        )
    return name


def is_remote(path: str) -> bool:
    """Whether ``path`` is an address on S3."""
    return path.startswith(SCHEME)


def cache_path(uri: str) -> Path:
    """Path of the local copy of ``uri``."""
    bucket, key = parse_s3_uri(uri)
    return cache_folder(COPIES) / bucket / key
