"""Create the bucket of the variable ``BUCKET`` if it is missing, and set the rules of
``lifecycle.json`` beside it.

Rules of the bucket whose ID does not begin with ``bifocal-`` stay: S3 replaces all rules at once.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

PREFIX = "bifocal-"


def main(bucket: str, rules: list[dict[str, Any]]) -> None:
    """Create ``bucket`` and set ``rules``."""
    client = boto3.client(
        "s3", config=Config(retries={"mode": "standard", "total_max_attempts": 10})
    )
    if call(client.head_bucket, {"404", "NoSuchBucket"}, Bucket=bucket) is None:
        region = client.meta.region_name
        # us-east-1 is the default, which S3 does not accept as a constraint.
        place = (
            {}
            if region in (None, "us-east-1")
            else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        )
        client.create_bucket(Bucket=bucket, **place)
        sys.stdout.write(f"created s3://{bucket}\n")
    present = (
        call(
            client.get_bucket_lifecycle_configuration,
            {"NoSuchLifecycleConfiguration"},
            Bucket=bucket,
        )
        or {}
    )
    others = [
        rule for rule in present.get("Rules", []) if not rule.get("ID", "").startswith(PREFIX)
    ]
    configuration = {"Rules": [*others, *rules]}
    put = client.put_bucket_lifecycle_configuration
    if call(put, {"NotImplemented"}, Bucket=bucket, LifecycleConfiguration=configuration) is None:
        sys.stdout.write(f"s3://{bucket}: this server has no lifecycle rules, so old files stay\n")
    else:
        sys.stdout.write(f"s3://{bucket}: {len(rules)} rules set, {len(others)} kept\n")


def call(method: Any, absent: set[str], **arguments: Any) -> Any:
    """Return the answer of a request, or None if S3 answers with one of the error codes
    ``absent``."""
    try:
        return method(**arguments)
    except ClientError as error:
        if error.response["Error"]["Code"] in absent:
            return None
        raise


if __name__ == "__main__":
    try:
        main(
            os.environ["BUCKET"], json.loads(Path(__file__).with_name("lifecycle.json").read_text())
        )
    except (BotoCoreError, ClientError) as problem:
        sys.exit(f"error: s3://{os.environ['BUCKET']}: {problem}")
