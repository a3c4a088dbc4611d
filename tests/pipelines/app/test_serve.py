"""The process writes nothing to a file; after SIGTERM it answers requests in progress, refuses new
ones, and ends."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bifocal.search.trained_model import TrainedModel
from tests.bifocal.serving.server import JSON, ROOT, Server
from tests.mlflow_server import free_port

BODY = json.dumps({"text": "three red stars on a beach", "k": 3}).encode()


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is a command of Linux")
def test_nothing_is_written_and_sigterm_lets_a_request_in_progress_end(
    demo: TrainedModel, tmp_path: Path
) -> None:
    # Each file may have 0 bytes, so that writing to one fails. Standard error is a pipe.
    server = Server(free_port(), tmp_path / "log.jsonl")
    program = [
        sys.executable,
        "-m",
        "bifocal",
        "serve",
        "--run",
        str(demo.directory),
        "--port",
        str(server.port),
    ]
    process = subprocess.Popen(
        ["prlimit", "--fsize=0", *program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    server.process = process
    server.log.touch()
    try:
        server.wait_until_ready()
        item = server.search(text="a red star", mode="hybrid", k=1)["results"][0]["id"]
        assert server.post("explain", {"id": item, "text": "a red star"})["phrases"]
        status, picture, _ = server.get(f"/api/v1/thumbnail?id={item}")
        assert status == 200
        assert (
            server.request("POST", "/api/v1/search/image", picture, {"content-type": "image/jpeg"})[
                0
            ]
            == 200
        )
        idle = server.connect()  # a connection that is kept alive must not delay the end
        idle.request("GET", "/v2/health/ready")
        assert idle.getresponse().read() == b'{"ready":true}'
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            head = (
                "POST /api/v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
                f"{JSON['content-type']}\r\n"
            )
            connection.sendall(f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY[:9])
            time.sleep(0.3)
            process.terminate()
            deadline = time.monotonic() + 30
            while server.accepts():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert process.poll() is None
            connection.sendall(BODY[9:])
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert process.wait(20) == 0  # once all is answered
    finally:
        process.kill()
        output, log = (content.decode() for content in process.communicate())
    assert output == f"Bifocal answers at http://127.0.0.1:{server.port} (stop: Ctrl-C)\n"
    assert "Traceback" not in log
