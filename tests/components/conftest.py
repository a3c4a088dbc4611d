"""S3 over a real socket: moto's server, and a proxy before it that breaks what it is told to."""

import socketserver
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

sys.path.insert(0, str(Path(__file__).parent))
from broken_s3 import Faults, Proxy


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
