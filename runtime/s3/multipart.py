"""Large files to S3 in parts: those that an interrupted upload left on the server are not sent again."""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

PARALLEL = 4
MOST_PARTS = 10_000  # S3's limit


def upload_parts(client: Any, path: Path, bucket: str, key: str, metadata: Mapping[str, str], part_bytes: int) -> None:
    """Store ``path`` at ``key``, going on with the latest upload to it that was neither completed nor aborted.

    A part counts as there if the server lists it with the SHA-256, or else the MD5, of these bytes. What a failure
    leaves is left for the next attempt; a bucket's lifecycle rule ``AbortIncompleteMultipartUpload`` ends what nobody
    takes up.

    Args:
        client: boto3's, of S3.
        metadata: of the object.
        part_bytes: of a part; more if the file would have over 10,000. S3 takes none below 5 MiB but the last.

    Raises:
        ClientError, BotoCoreError: the server failed too often, or refused.
    """
    size = path.stat().st_size
    part_bytes = max(part_bytes, -(-size // MOST_PARTS))
    upload, there = _open_upload(client, bucket, key)
    resumed = upload is not None
    if upload is None:
        upload = client.create_multipart_upload(
            Bucket=bucket, Key=key, Metadata=dict(metadata), ChecksumAlgorithm="SHA256"
        )["UploadId"]
    where = {"Bucket": bucket, "Key": key, "UploadId": upload}

    def send(number: int) -> dict[str, Any]:
        with path.open("rb") as file:
            file.seek((number - 1) * part_bytes)
            data = file.read(part_bytes)
        digest = b64encode(hashlib.sha256(data).digest()).decode()
        listed = there.get(number, {})
        # The server compares what arrives with the checksum that travels with it.
        tag = listed["ETag"] if _same(listed, data, digest) else client.upload_part(
            **where, PartNumber=number, Body=data, ChecksumSHA256=digest
        )["ETag"]  # fmt: skip
        return {"PartNumber": number, "ETag": tag, "ChecksumSHA256": digest}

    with ThreadPoolExecutor(PARALLEL) as pool:
        parts = list(pool.map(send, range(1, -(-size // part_bytes) + 1)))
    client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    # The metadata are those of the day on which the upload was begun, perhaps for a former file of this name.
    if resumed and client.head_object(Bucket=bucket, Key=key)["Metadata"] != dict(metadata):
        upload_parts(client, path, bucket, key, metadata, part_bytes)


def _open_upload(client: Any, bucket: str, key: str) -> tuple[str | None, dict[int, Any]]:
    """The latest upload to ``key`` that is still open, and its parts by their numbers."""
    try:
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=key)
        found = [upload for page in pages for upload in page.get("Uploads", []) if upload["Key"] == key]
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (403, 501):  # keys that may not, or a server
            raise
        return None, {}
    if not found:
        return None, {}
    upload = max(found, key=lambda upload: upload["Initiated"])["UploadId"]
    pages = client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=upload)
    return upload, {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}


def _same(listed: Mapping[str, Any], data: bytes, digest: str) -> bool:
    if listed.get("Size") != len(data):
        return False
    if "ChecksumSHA256" in listed:
        return bool(listed["ChecksumSHA256"] == digest)
    return bool(listed["ETag"].strip('"') == hashlib.md5(data, usedforsecurity=False).hexdigest())
