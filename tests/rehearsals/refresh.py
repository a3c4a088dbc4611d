"""A refresh of a collection of 100,000 objects on S3 costs what changed, and continues after a
failure.

    make rehearse-refresh [OBJECTS=100000]

``AWS_ENDPOINT_URL`` and the keys of an account name a real server; without them, moto's server is
started. The previous collection has drawn vectors, and the ETags of the objects.
"""

import hashlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from PIL import Image

from bifocal.datasets.base import META
from bifocal.progress import log_line
from bifocal.search.collection import format
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.writer import CollectionWriter, Item
from runtime.s3.remote_images import remote_source
from runtime.s3.uri import StorageError
from tests.components.embed_collection.conftest import embed, inputs, untracked
from tests.mlflow_server import free_port

__all__ = ["inputs", "untracked"]  # fixtures of this file, too
OBJECTS = int(os.environ.get("OBJECTS", "100000"))
SHARD = OBJECTS // 10
CHANGED, NEW, DELETED, MOST = 60, 40, 20, 200
BUCKET, FOLDER = "bifocal-refresh", "photos"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a bucket with the images."""
    with pytest.MonkeyPatch.context() as patch:
        started = None
        if "AWS_ENDPOINT_URL" not in os.environ:
            port = free_port()
            command = ["-m", "moto.server", "--port", str(port)]
            started = subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL)
            patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
            patch.setenv("AWS_ACCESS_KEY_ID", "refresh")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "refresh")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("BIFOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        try:
            wait_for_bucket()
            log_line(f"writing {OBJECTS:,} objects")
            put_all({f"{FOLDER}/{number:06d}.png": number for number in range(OBJECTS)})
            put_all({f"few/{number}.png": number for number in range(3)})
            yield f"s3://{BUCKET}"
        finally:
            if started is not None:
                started.kill()


def wait_for_bucket() -> None:
    end = time.monotonic() + 30
    while True:
        try:
            boto3.client("s3").create_bucket(Bucket=BUCKET)
            return
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def put_all(images: dict[str, int]) -> None:
    """Write one small image for each name, drawn with its seed."""
    client = boto3.client("s3")

    def put(name: str) -> None:
        pixels = np.random.default_rng(images[name]).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        client.put_object(Bucket=BUCKET, Key=name, Body=file.getvalue())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, images))


def write_previous(folder: Path, address: str, few: Collection) -> None:
    """Write a collection of all objects, by the model of another collection."""
    source = remote_source(address, folder.with_name("copy"), folder)
    model = few.description
    writer = CollectionWriter(
        folder,
        format.Description(model.model, address, model.dimension, None, model.preprocessing),
        SHARD,
    )
    vector = np.eye(model.dimension)[0]
    for entry, state in zip(source.entries, source.states(source.entries), strict=True):
        digest = previous_digest(entry.item_id)
        writer.add(Item(entry.item_id, entry.image, digest, 8, 8, tuple(state.tolist())), vector)
    names = [entry.item_id for entry in source.entries]
    dates = pa.nulls(len(names), format.TIME)
    columns = {"item_id": names, META + format.FOLDER: [""] * len(names), META + format.DATE: dates}
    writer.finish({}, pa.table(columns))


class Requests:
    """Counts of requests to S3; after ``fail_after`` objects, each further one fails."""

    def __init__(self, send: Callable[..., object]) -> None:
        self._send = send
        self.listings, self.objects, self.fail_after = 0, 0, sys.maxsize

    def send(self, session: URLLib3Session, request: AWSPreparedRequest) -> object:
        if "list-type" in request.url:
            self.listings += 1
        elif self.objects >= self.fail_after:
            raise ConnectionClosedError(endpoint_url=request.url)
        else:
            self.objects += 1
        return self._send(session, request)

    def taken(self) -> tuple[int, int]:
        """Return the listings and objects since the last call."""
        taken = self.listings, self.objects
        self.listings = self.objects = 0
        return taken


@pytest.mark.timeout(3600)
def test_a_refresh_costs_what_changed(
    server: str, inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, pages = Requests(URLLib3Session.send), -(-OBJECTS // 1000)
    monkeypatch.setattr(
        URLLib3Session, "send", lambda session, request: requests.send(session, request)
    )
    options: dict[str, Any] = {
        "source": f"{server}/{FOLDER}",
        "items_per_shard": SHARD,
        "regions": False,
    }
    embed(inputs, tmp_path / "few", **options | {"source": f"{server}/few"})
    write_previous(tmp_path / "previous", f"{server}/{FOLDER}", Collection.open(tmp_path / "few"))
    changed = {
        f"{FOLDER}/{number:06d}.png": OBJECTS + number for number in range(0, CHANGED * 7, 7)
    }
    put_all(changed | {f"{FOLDER}/new-{number}.png": 3 * OBJECTS + number for number in range(NEW)})
    client = boto3.client("s3")
    for number in range(1, 1 + DELETED):
        client.delete_object(Bucket=BUCKET, Key=f"{FOLDER}/{number * 7 + 1:06d}.png")
    monkeypatch.setenv("BIFOCAL_CACHE", str(tmp_path / "pod"))  # the disk of another pod
    requests.taken()
    requests.fail_after = (CHANGED + NEW) // 2
    start = time.monotonic()
    with pytest.raises(StorageError, match="Transferred files are kept"):
        embed(inputs, tmp_path / "collection", previous=str(tmp_path / "previous"), **options)
    failed = requests.taken()
    report("refresh, which failed", failed, start)
    requests.fail_after, start = sys.maxsize, time.monotonic()
    metrics = embed(inputs, tmp_path / "collection", previous=str(tmp_path / "previous"), **options)
    taken = requests.taken()
    report("its retry", taken, start)
    assert metrics["deleted"] == DELETED
    assert CHANGED + NEW == failed[1] + taken[1] <= MOST
    assert failed[0] <= pages + 1
    assert taken[0] <= pages + 1
    items = pq.read_table(
        tmp_path / "collection" / format.ITEMS, columns=["item_id", "sha256", "deleted"]
    ).to_pylist()
    left = [item for item in items if not item["deleted"]]
    assert len(left) == OBJECTS + NEW - DELETED
    assert sum(item["sha256"] != previous_digest(item["item_id"]) for item in left) == CHANGED + NEW


def previous_digest(item_id: str) -> str:
    return hashlib.sha256(item_id.encode()).hexdigest()


def report(name: str, taken: tuple[int, int], start: float) -> None:
    log_line(
        f"{name}: {taken[0]:,} listings, {taken[1]:,} objects, {time.monotonic() - start:.0f} s"
    )
