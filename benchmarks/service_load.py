"""``bifocal serve`` as a process, and clients that search with it over loopback."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from benchmarks.common import ROOT

HEAD = b"POST /api/v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
RETRY = 0.5
"""Seconds from a broken connection to the next one."""
Value = TypeVar("Value")


class Service:
    """A process of ``bifocal serve`` at its default limits, or of another server."""

    def __init__(
        self,
        run: Path,
        port: int,
        log: Path,
        command: Sequence[str] | None = None,
        probe: str = "/readyz",
    ) -> None:
        serve = [sys.executable, "-m", "bifocal", "serve", "--run", str(run), "--port", str(port)]
        self.command = serve if command is None else command
        self.port, self.log, self.probe = port, log, probe
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, cwd=ROOT, stdout=log, stderr=log)

    def wait_until_ready(self) -> None:
        """Wait until the service has loaded its model.

        Raises:
            RuntimeError: the process has ended.
        """
        while self.process.poll() is None:
            try:
                urlopen(f"http://127.0.0.1:{self.port}{self.probe}", timeout=5).close()
                return
            except (URLError, OSError):
                time.sleep(0.02)
        raise RuntimeError(self.log.read_text())

    def __enter__(self) -> "Service":
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process and of its children."""
        return float(sum(sum(process.cpu_times()[:2]) for process in self._processes()))

    def kill(self) -> None:
        """Send SIGKILL to the process and its children."""
        for process in self._processes():
            process.kill()
        self.process.wait()

    def _processes(self) -> list[psutil.Process]:
        process = psutil.Process(self.process.pid)
        return [process, *process.children(recursive=True)]

    def restart(self) -> float:
        """Kill the process and start it again; return the seconds until it is ready."""
        self.kill()
        start = time.monotonic()
        self.process = self._start()
        self.wait_until_ready()
        return time.monotonic() - start


@dataclass
class Answers:
    """The latency in seconds and the status of every answer, and the number of broken
    connections."""

    latencies: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    broken: int = 0

    @property
    def failed(self) -> int:
        """Number of answers whose status is not 200."""
        return sum(status != 200 for status in self.statuses)


async def search(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sentence: str
) -> tuple[int, bytes]:
    """Return status and body of the answer to one search."""
    body = json.dumps({"text": sentence}).encode()
    writer.write(HEAD + f"content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = next(
        line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    found = await reader.readexactly(int(length.partition(b":")[2]))
    return int(answer.split(b" ", 2)[1]), found


async def under_load(
    port: int, count: int, sentences: list[str], action: Coroutine[Any, Any, Value]
) -> tuple[Answers, Value]:
    """Return the answers to ``count`` clients, which search until ``action`` is done, and its
    value."""
    answers, done = Answers(), asyncio.Event()

    async def client(number: int) -> None:
        chosen = random.Random(number)
        while not done.is_set():
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                while not done.is_set():
                    start = time.perf_counter()
                    answers.statuses.append(
                        (await search(reader, writer, chosen.choice(sentences)))[0]
                    )
                    answers.latencies.append(time.perf_counter() - start)
                writer.close()
            except (OSError, asyncio.IncompleteReadError):
                answers.broken += 1
                await asyncio.sleep(RETRY)

    clients = [asyncio.create_task(client(number)) for number in range(count)]
    try:
        value = await action
    finally:
        done.set()
        await asyncio.gather(*clients)
    return answers, value
