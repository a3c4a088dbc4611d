"""Storage against moto's server over a real socket, with a proxy between them that breaks what it is told to."""

import http.client
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from components import artifact
from components.storage import Storage, StorageError, split

MIB = 1 << 20
PART = 5 * MIB


@dataclass
class Faults:
    """What the proxy does to the next requests, by method: "500", "503", "close" in mid-body, "stall"."""

    port: int
    planned: dict[str, list[str]] = field(default_factory=dict)
    seen: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stalled: threading.Event = field(default_factory=threading.Event)

    def next(self, method: str, path: str) -> str | None:
        with self.lock:
            self.seen.append((method, path))
            waiting = self.planned.get(method, [])
            return waiting.pop(0) if waiting else None


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faults: Faults

    def forward(self) -> None:
        fault = self.faults.next(self.command, self.path)
        if self.headers.get("Expect"):
            self.close_connection = True
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault == "stall":
            self.faults.stalled.wait()
            self.close_connection = True
            return
        if fault in ("500", "503"):
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.faults.port)
        upstream.request(self.command, self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if fault == "close":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        else:
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def moto() -> Iterator[int]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def faults(moto: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    broken = Faults(moto)
    handler = type("Broken", (Proxy,), {"faults": broken})
    server: socketserver.BaseServer = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "BIFOCAL_S3_PATH_STYLE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{moto}")
    client.create_bucket(Bucket="bucket")
    yield broken
    broken.stalled.set()
    server.shutdown()
    server.server_close()
    for entry in client.list_objects_v2(Bucket="bucket").get("Contents", []):
        client.delete_object(Bucket="bucket", Key=entry["Key"])


def make(folder: Path, large: int = 0) -> dict[str, bytes]:
    """An artifact with small files, one empty, and one of ``large`` bytes."""
    files = {
        "table.parquet": bytes(range(256)) * 40,
        "images/ü 1.png": b"x" * 1000,
        "images/empty": b"",
        "large": bytes(i * i % 251 for i in range(1000)) * (large // 1000),
    }
    partial = artifact.begin(folder, {})
    for name, data in files.items():
        (partial / name).parent.mkdir(exist_ok=True)
        (partial / name).write_bytes(data)
    artifact.commit(partial, folder, {})
    return files


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != artifact.MANIFEST
    }


def test_an_artifact_goes_to_s3_in_parts_and_comes_back_the_same(faults: Faults, tmp_path: Path) -> None:
    files = make(tmp_path / "dataset", large=2 * PART + 3000)
    storage = Storage(part_bytes=PART)
    storage.upload(tmp_path / "dataset", "s3://bucket/runs/1/dataset")
    storage.download("s3://bucket/runs/1/dataset", tmp_path / "back")
    assert contents(tmp_path / "back") == files
    assert artifact.artifact_hash(tmp_path / "back") == artifact.artifact_hash(tmp_path / "dataset")
    assert sum("partNumber=" in path for _, path in faults.seen) == 3
    written = [path for method, path in faults.seen if method in ("PUT", "POST")]
    assert written[-1] == "/bucket/runs/1/dataset/manifest.json"


def test_a_second_upload_and_a_second_download_transfer_nothing(faults: Faults, tmp_path: Path) -> None:
    make(tmp_path / "dataset")
    for _ in range(2):
        faults.seen.clear()
        Storage().upload(tmp_path / "dataset", "s3://bucket/a")
    assert {method for method, _ in faults.seen} == {"HEAD"}
    for _ in range(2):
        faults.seen.clear()
        Storage().download("s3://bucket/a", tmp_path / "back")
    assert not [path for method, path in faults.seen if method == "GET" and "list-type" not in path]
    assert contents(tmp_path / "back") == contents(tmp_path / "dataset")


@pytest.mark.parametrize("fault", ["500", "503", "close", "stall"])
def test_passing_faults_are_outlived_and_lose_nothing(faults: Faults, tmp_path: Path, fault: str) -> None:
    files = make(tmp_path / "dataset", large=PART + 1000)
    storage = Storage(part_bytes=PART, timeout=1.0)
    faults.planned = {"PUT": [fault] * 2, "POST": [fault], "HEAD": ["503"]}
    storage.upload(tmp_path / "dataset", "s3://bucket/b")
    faults.planned = {"GET": [fault] * 3, "HEAD": ["500"]}
    storage.download("s3://bucket/b", tmp_path / "back")
    assert contents(tmp_path / "back") == files


def test_attempts_are_bounded_and_the_next_run_goes_on(faults: Faults, tmp_path: Path) -> None:
    files = make(tmp_path / "dataset")
    storage = Storage(attempts=2, workers=1)
    faults.planned = {"PUT": [*["ok"] * 2, *["503"] * 2]}
    with pytest.raises(StorageError, match=r"s3://bucket/c/.*the next attempt goes on"):
        storage.upload(tmp_path / "dataset", "s3://bucket/c")
    sent = [path for method, path in faults.seen if method == "PUT"][:2]
    faults.seen.clear()
    storage.upload(tmp_path / "dataset", "s3://bucket/c")
    assert not set(sent) & {path for method, path in faults.seen if method == "PUT"}

    faults.planned = {"GET": [*["ok"] * 2, *["500"] * 4]}
    with pytest.raises(StorageError, match="the next attempt goes on"):
        storage.download("s3://bucket/c", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    faults.planned = {}
    faults.seen.clear()
    storage.download("s3://bucket/c", tmp_path / "back")
    fetched = [path for method, path in faults.seen if method == "GET" and "list-type" not in path]
    assert 0 < len(fetched) < len(files) + 1
    assert contents(tmp_path / "back") == files


def test_damage_on_the_server_is_found(faults: Faults, tmp_path: Path) -> None:
    make(tmp_path / "dataset")
    storage = Storage()
    storage.upload(tmp_path / "dataset", "s3://bucket/d")
    digest = artifact.hash_files(tmp_path / "dataset")["table.parquet"]
    client = boto3.client("s3")
    client.put_object(Bucket="bucket", Key="d/table.parquet", Body=b"y" * 10240, Metadata={"sha256": digest})
    with pytest.raises(StorageError, match=r"d/table\.parquet came damaged"):
        storage.download("s3://bucket/d", tmp_path / "back")
    client.put_object(Bucket="bucket", Key="d/table.parquet", Body=b"y" * 10240)
    with pytest.raises(StorageError, match=r"table\.parquet differ from the manifest"):
        storage.download("s3://bucket/d", tmp_path / "back")


def test_a_single_file_and_a_wrong_address(faults: Faults, tmp_path: Path) -> None:
    boto3.client("s3").put_object(Bucket="bucket", Key="words/w2v.bin", Body=b"vectors")
    Storage().download("s3://bucket/words/w2v.bin", tmp_path / "w2v.bin")
    assert (tmp_path / "w2v.bin").read_bytes() == b"vectors"
    with pytest.raises(StorageError, match="nothing is there"):
        Storage().download("s3://bucket/word", tmp_path / "none")
    with pytest.raises(StorageError, match="NoSuchBucket"):
        Storage().download("s3://bouquet/words", tmp_path / "none")


@pytest.mark.parametrize("address", ["s3://bucket", "s3:///key", "/a/b", "s3://bucket/"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(StorageError, match="expected s3://bucket/key"):
        split(address)
