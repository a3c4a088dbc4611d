"""The processes of the year: the MLflow server with the registry, and the service."""

import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from benchmarks.common import ROOT
from tests.mlflow_server import free_port, start_server, stop_server, wait_for_server

SECONDS = 120.0
POLL = 1.0
"""Seconds between two looks of the service for a new release."""


class Registry:
    """An MLflow server on an SQLite database.

    Args:
        folder: of the database and of the files.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, name it in the environment, and wait until it answers."""
        os.environ["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{self.port}"
        self._process = start_server(self.folder, self.port)
        wait_for_server(self.port)

    def kill(self) -> None:
        """Send SIGKILL to the server and its workers."""
        if self._process is not None:
            stop_server(self._process)
            self._process = None


class Service:
    """A process of ``bifocal serve`` with the champion's release.

    Args:
        model: name in the registry with the alias.
        images: their folder.
        log: file of its standard error.
    """

    def __init__(self, model: str, images: Path, log: Path) -> None:
        self.port, self.log = free_port(), log
        self._command = [
            sys.executable,
            "-m",
            "bifocal",
            "serve",
            "--model",
            f"models:/{model}",
            "--images",
            str(images),
            "--port",
            str(self.port),
            "--poll",
            str(POLL),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stderr=log)

    def wait_for(self, release: str) -> float:
        """Wait until the service answers with a release; return the seconds.

        Args:
            release: its hash.

        Raises:
            RuntimeError: the process has ended, or does not load the release.
        """
        start = time.monotonic()
        while release[:12] not in (state := self._state()):
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > start + SECONDS:
                raise RuntimeError(
                    f"the service does not load {release[:12]}: "
                    f"{state}\n{self.log.read_text()[-2000:]}"
                )
            time.sleep(POLL / 5)
        return time.monotonic() - start

    def stop(self) -> None:
        """End the process by SIGTERM."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _state(self) -> str:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=SECONDS) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            return error.read().decode()
        except (URLError, OSError) as error:
            return str(error)
