"""The real process of ``bifocal serve``, and requests to it over a socket."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.mlflow_server import free_port

ROOT = Path(__file__).parents[3]
START_SECONDS = 300
ADMIN_KEY = "the-admin-key-of-the-tests"
JSON = {"content-type": "application/json"}


class Server:
    """A process of ``bifocal serve``.

    Args:
        port: to listen on.
        log: file of its standard error.
    """

    def __init__(self, port: int, log: Path, *options: object) -> None:
        self.port, self.log, self.options = port, log, options
        self.process: subprocess.Popen[bytes] | None = None
        self.source: tuple[str, int] | None = None  # address of the client

    def start(self) -> None:
        """Start the process; ``wait_until_ready`` waits for it."""
        command = [
            sys.executable,
            "-m",
            "bifocal",
            "serve",
            "--port",
            str(self.port),
            *map(str, self.options),
        ]
        environment = os.environ | {"BIFOCAL_ADMIN_KEY": ADMIN_KEY, "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log)

    def wait_until_ready(self) -> None:
        """Wait until the service has loaded a model."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            try:
                if self.get("/readyz")[0] == 200:
                    return
            except OSError:
                pass
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Send SIGTERM, and wait."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def accepts(self) -> bool:
        """Return whether the process accepts connections."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def connect(self) -> HTTPConnection:
        """Return a connection."""
        return HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=self.source)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, HTTPResponse]:
        """Return status, body and the rest of an answer."""
        connection = self.connect()
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read(), answer
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> tuple[int, bytes, HTTPResponse]:
        """Return the answer to a GET."""
        return self.request("GET", path, headers=headers)

    def post(self, path: str, content: Any) -> Any:
        """Return the JSON of a successful answer to a POST of JSON."""
        status, body, _ = self.request(
            "POST", f"/api/v1/{path}", json.dumps(content).encode(), JSON
        )
        assert status == 200, body
        return json.loads(body)

    def search(self, **query: Any) -> Any:
        """Return the answer to a search."""
        return self.post("search", query)

    def delete(self, item_id: str) -> int:
        """Delete an item; return the status."""
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        return self.request("DELETE", f"/api/v1/item?id={quote(item_id)}", headers=headers)[0]

    def entries(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextmanager
def running_server(run: Path) -> Iterator[Server]:
    """Yield the service of a run, with its log and its deletions beside the run."""
    log, deletions = run.with_name("log.jsonl"), run.with_name("deleted.jsonl")
    running = Server(free_port(), log, "--run", run, "--deletions", deletions, "--poll", 0.2)
    running.start()
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()
