"""How fast does ``bifocal serve`` answer many clients, and how soon is it back after a crash?

    python -m benchmarks run speed.service [--clients 200] [--seconds 60] [--run FOLDER]

The clients search by captions of the collection over loopback, each with one request after the other. They share the
machine with the service. The floor is the text encoder alone, which encodes one sentence after the other.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import psutil

import bifocal
from benchmarks.common import ROOT, Report
from pipelines.app.demo_folder import unpack
from tests.mlflow_server import free_port

ENCODED = 500
"""Sentences that the bare encoder encodes."""
READY_SECONDS = 10.0
HEAD = b"POST /api/v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


class Service:
    """A process of ``bifocal serve`` at its default limits."""

    def __init__(self, run: Path, port: int, log: Path) -> None:
        self.command = [sys.executable, "-m", "pipelines.app", "serve", "--run", str(run), "--port", str(port)]
        self.port, self.log = port, log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, cwd=ROOT, stderr=log)

    def wait_until_ready(self) -> None:
        """Wait until the service has loaded its model.

        Raises:
            RuntimeError: the process has ended.
        """
        while self.process.poll() is None:
            try:
                urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5).close()
                return
            except (URLError, OSError):
                time.sleep(0.02)
        raise RuntimeError(self.log.read_text())

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> float:
        """Kill the process and start it again; return the seconds until it is ready."""
        self.kill()
        start = time.monotonic()
        self.process = self._start()
        self.wait_until_ready()
        return time.monotonic() - start


async def search(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sentence: str) -> int:
    """Return the status of the answer to one search."""
    body = json.dumps({"text": sentence}).encode()
    writer.write(HEAD + f"content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return int(answer.split(b" ", 2)[1])


async def run_clients(port: int, count: int, seconds: float, sentences: list[str]) -> tuple[list[float], list[int]]:
    """Return the latency in seconds and the status of every request."""
    latencies: list[float] = []
    statuses: list[int] = []
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        chosen = random.Random(number)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (start := time.perf_counter()) < end:
            statuses.append(await search(reader, writer, chosen.choice(sentences)))
            latencies.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*map(client, range(count)))
    return latencies, statuses


def encoder_latencies(run: Path, sentences: list[str]) -> tuple[list[float], float]:
    """Return the seconds of the text encoder for one sentence at a time, and its mean CPU time in seconds."""
    model = bifocal.load(run)
    model.encode_text(sentences[:1])
    found, begin = [], time.process_time()
    for sentence in sentences[:ENCODED]:
        start = time.perf_counter()
        model.encode_text([sentence])
        found.append(time.perf_counter() - start)
    return found, (time.process_time() - begin) / len(found)


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--run", type=Path, help="run folder; default: the folder of 'bifocal demo'")
    arguments = parser.parse_args()
    report = Report("speed.service")
    with tempfile.TemporaryDirectory() as folder:
        run = arguments.run or unpack(Path(folder) / "run").directory
        collection = bifocal.load(run).collection
        sentences = sorted({text for row in range(len(collection)) for text in collection.captions(row)})
        random.Random(0).shuffle(sentences)
        alone, encoder_cpu = encoder_latencies(run, sentences)
        service = Service(run, free_port(), Path(folder) / "log.jsonl")
        try:
            service.wait_until_ready()
            before = service.cpu_seconds()
            measured = run_clients(service.port, arguments.clients, arguments.seconds, sentences)
            latencies, statuses = asyncio.run(measured)
            service_cpu = (service.cpu_seconds() - before) / len(statuses)
            seconds = service.restart()
        finally:
            service.kill()
    p50, p99 = (1000 * np.percentile(latencies, share) for share in (50, 99))
    alone_p50, alone_p99 = (1000 * np.percentile(alone, share) for share in (50, 99))
    clients = f"{arguments.clients} clients, {arguments.seconds:g} s"
    report.add(
        "requests that were not answered with 200", sum(s != 200 for s in statuses), at_most=0, reference=clients
    )
    report.add(
        "answers per second", len(statuses) / arguments.seconds, "1/s", reference=f"encoder {1000 / alone_p50:.0f}"
    )
    report.add("median latency", p50, "ms", reference=f"encoder {alone_p50:.2f}")
    report.add("99th percentile of the latency", p99, "ms", reference=f"encoder {alone_p99:.2f}")
    report.add(
        "CPU time of an answer", 1000 * service_cpu, "ms",
        reference=f"{service_cpu / encoder_cpu:.0f} times the encoder's {1000 * encoder_cpu:.2f}",
    )  # fmt: skip
    report.add("ready after SIGKILL", seconds, "s", at_most=READY_SECONDS, reference=f"{os.cpu_count()} cores")
    report.write()


if __name__ == "__main__":
    main()
