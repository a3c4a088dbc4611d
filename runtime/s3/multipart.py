"""Multipart upload of large files that resumes an interrupted upload."""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

PARALLEL_PARTS = 4
MAX_PARTS = 10_000  # limit of S3


def upload_parts(
    client: Any, path: Path, bucket: str, key: str, metadata: Mapping[str, str], part_bytes: int
) -> None:
    """Upload ``path`` to ``key``; resume the latest open upload: parts with the same SHA-256 or MD5
    are not sent again. Parts are at least 5 MiB and at most 10,000; the lifecycle rule
    ``AbortIncompleteMultipartUpload`` deletes abandoned ones.
    """
    size = path.stat().st_size
    part_bytes = max(part_bytes, -(-size // MAX_PARTS))
    upload, uploaded_parts = _open_upload(client, bucket, key)
    if upload is None:
        upload = client.create_multipart_upload(
            Bucket=bucket, Key=key, Metadata=dict(metadata), ChecksumAlgorithm="SHA256"
        )["UploadId"]
    request = {"Bucket": bucket, "Key": key, "UploadId": upload}

    def send(number: int) -> dict[str, Any]:
        with path.open("rb") as file:
            file.seek((number - 1) * part_bytes)
            data = file.read(part_bytes)
        digest = b64encode(hashlib.sha256(data).digest()).decode()
        part = uploaded_parts.get(number, {})
        if not _same_bytes(part, data, digest):
            # ChecksumSHA256: the server compares the received bytes with it.
            part = client.upload_part(
                **request, PartNumber=number, Body=data, ChecksumSHA256=digest
            )
        return {"PartNumber": number, "ETag": part["ETag"], "ChecksumSHA256": digest}

    with ThreadPoolExecutor(PARALLEL_PARTS) as pool:
        parts = list(pool.map(send, range(1, -(-size // part_bytes) + 1)))
    client.complete_multipart_upload(**request, MultipartUpload={"Parts": parts})


def _open_upload(client: Any, bucket: str, key: str) -> tuple[str | None, dict[int, Any]]:
    try:
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=key)
        uploads = [
            upload for page in pages for upload in page.get("Uploads", []) if upload["Key"] == key
        ]
    except ClientError as error:
        # 403: the keys may not list uploads; 501: the server cannot. Then nothing can be resumed.
        if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (403, 501):
            raise
        return None, {}
    if not uploads:
        return None, {}
    latest = max(uploads, key=lambda upload: upload["Initiated"])["UploadId"]
    pages = client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=latest)
    return latest, {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}


def _same_bytes(part: Mapping[str, Any], data: bytes, digest: str) -> bool:
    """Whether a part that the server lists has the bytes ``data``, whose SHA-256 is ``digest``
    (base64)."""
    if part.get("Size") != len(data):
        return False
    if "ChecksumSHA256" in part:
        return bool(part["ChecksumSHA256"] == digest)
    return bool(part["ETag"].strip('"') == hashlib.md5(data, usedforsecurity=False).hexdigest())
