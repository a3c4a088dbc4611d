"""Interrupted multipart uploads: the next run sends only the missing parts."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
from broken_s3 import Faults

from runtime.s3.storage import Storage, stored_digest
from runtime.s3.uri import StorageError

ROOT = Path(__file__).parents[3]
PART = 5 << 20
PARTS = 3
OBJECT = {"Bucket": "bucket", "Key": "big/file"}
UPLOAD = f"""
import sys
from pathlib import Path
from runtime.s3.storage import Storage
Storage(part_bytes={PART}).upload(Path(sys.argv[1]), "s3://bucket/big")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file of three parts."""
    home = tmp_path / "big"
    home.mkdir()
    (home / "file").write_bytes(
        b"".join(bytes([part]) * PART for part in range(PARTS))[: -PART // 2]
    )
    return home


def open_parts(client: Any) -> int:
    uploads = client.list_multipart_uploads(Bucket="bucket").get("Uploads", [])
    return sum(
        len(client.list_parts(**OBJECT, UploadId=one["UploadId"]).get("Parts", []))
        for one in uploads
    )


def parts_sent(faults: Faults) -> int:
    sent = sum(method == "PUT" and "partNumber=" in path for method, path in faults.seen)
    faults.seen.clear()
    return sent


def test_parts_of_a_killed_upload_are_not_sent_again(faults: Faults, folder: Path) -> None:
    faults.planned = {"PUT": ["ok", "ok", "stall"]}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{faults.port}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", UPLOAD, str(folder)], env=environment) as process:
        end = time.monotonic() + 60
        while open_parts(client) < 2 or len(faults.planned["PUT"]):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    faults.seen.clear()
    Storage(part_bytes=PART).upload(folder, "s3://bucket/big")
    assert parts_sent(faults) == PARTS - 2
    assert client.get_object(**OBJECT)["Body"].read() == (folder / "file").read_bytes()
    assert open_parts(client) == 0
    Storage().download(
        "s3://bucket/big", folder.with_name("back")
    )  # compares the SHA-256 of the metadata


def test_upload_that_failed_after_every_attempt_is_resumed(faults: Faults, folder: Path) -> None:
    faults.planned = {"PUT": ["ok", *["503"] * 99]}
    with pytest.raises(StorageError, match="the next attempt resumes"):
        Storage(part_bytes=PART, attempts=2).upload(folder, "s3://bucket/big")
    faults.planned = {}
    faults.seen.clear()
    Storage(part_bytes=PART).upload(folder, "s3://bucket/big")
    assert parts_sent(faults) == PARTS - 1


@pytest.mark.skipif(
    "BIFOCAL_TEST_S3" in os.environ, reason="other servers refuse a request of the test itself"
)
def test_resumed_upload_of_another_file_stores_its_own_hash(faults: Faults, folder: Path) -> None:
    client = boto3.client("s3")
    previous = client.create_multipart_upload(
        **OBJECT, Metadata={"sha256": "previous"}, ChecksumAlgorithm="SHA256"
    )
    data = (folder / "file").read_bytes()
    client.upload_part(**OBJECT, UploadId=previous["UploadId"], PartNumber=1, Body=data[:PART])
    client.upload_part(
        **OBJECT, UploadId=previous["UploadId"], PartNumber=2, Body=b"previous" * PART
    )
    faults.seen.clear()
    Storage(part_bytes=PART).upload(folder, "s3://bucket/big")
    stored = client.get_object(**OBJECT)
    assert stored["Body"].read() == data
    assert stored_digest(stored) == hashlib.sha256(data).hexdigest()
    assert (
        parts_sent(faults) == 2 * PARTS - 1
    )  # one part is equal; then all again, for the metadata
