"""One error for every failure of S3."""

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.redaction import redact


class StorageError(OSError):
    """A request to S3 failed after every attempt, or a file has other contents than were uploaded."""


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
