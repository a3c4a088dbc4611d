"""A real MLflow server behind a TCP proxy that simulates outages."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

START_SECONDS = 300


class Proxy:
    """Forwards a local port to ``upstream``; while it is down, connections are refused and open
    ones are cut."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.port = free_port()
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        for connection in filter(None, [self._listener, *self._connections]):
            with suppress(OSError):  # the peer has closed it
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._listener = None
        self._connections.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.upstream))
            self._connections += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):  # cut by ``stop``
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def start_server(
    folder: Path, port: int, store: str | None = None, names: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start the server as 'make mlflow' does; it accepts requests only for the hosts
    ``127.0.0.1[:any port]``, or from other machines, for their ``names`` of it."""
    store = store or f"sqlite:///{folder}/mlflow.db"
    arguments = [
        f"--backend-store-uri={store}",
        f"--artifacts-destination={folder}/files",
        "--workers=1",
        f"--host={'0.0.0.0' if names else '127.0.0.1'}",
        f"--port={port}",
        "--allowed-hosts=" + ",".join(f"{name},{name}:*" for name in ("127.0.0.1", *names)),
    ]
    # Without its job queues, which are seven more processes.
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for_server(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise TimeoutError(f"no MLflow server at port {port} after {START_SECONDS} s")


def stop_server(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
