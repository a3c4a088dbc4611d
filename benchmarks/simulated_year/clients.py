"""Clients of the service in a process of their own, which ask one query after the other through the
whole year."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import numpy as np

from benchmarks.common import ROOT

PAUSE = 0.02
"""Seconds between an answer and the next query."""
TIMEOUT = 30.0
ANSWERS = "answers.txt"
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Answers:
    """Answers of one week: status, 0 without an answer, and seconds of each query."""

    statuses: Sequence[int]
    seconds: Sequence[float]

    @property
    def failed(self) -> int:
        """Number of queries without the status 200."""
        return sum(status != 200 for status in self.statuses)

    def milliseconds(self, percentile: float) -> float:
        """Return a percentile of the latency."""
        return float(1000 * np.percentile(self.seconds, percentile))


class Clients:
    """The process of the clients.

    Args:
        folder: of the queries and answers.
        port: of the service.
    """

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir()
        self.folder = folder
        self._command = [
            sys.executable,
            "-m",
            "benchmarks.simulated_year.clients",
            str(folder),
            str(port),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it asks the queries of the last week that was given."""
        self._process = subprocess.Popen(self._command, cwd=ROOT)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def ask(self, week: int, queries: Sequence[str]) -> Path:
        """Make these the queries of the present week; return their file."""
        file, new = self.folder / f"week-{week:02d}.txt", self.folder / "new"
        new.write_text("\n".join(queries) + "\n", encoding="utf-8")
        new.replace(file)
        return file

    def finish(self, week: int, least: int) -> Answers:
        """Wait until ``least`` queries of a week are answered, and return the answers so far.

        Raises:
            RuntimeError: the process has ended.
        """
        while len((answers := self.answers(week)).statuses) < least:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError("the process of the clients has ended")
            time.sleep(PAUSE)
        return answers

    def answers(self, week: int) -> Answers:
        """Return the answers of a week."""
        file = self.folder / ANSWERS
        lines = file.read_text().splitlines() if file.is_file() else []
        found = [line.split() for line in lines if line.startswith(f"{week} ")]
        return Answers(
            [int(status) for _, status, _ in found], [float(seconds) for _, _, seconds in found]
        )


def main() -> None:
    """Ask, until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    connection = HTTPConnection("127.0.0.1", arguments.port, timeout=TIMEOUT)
    number, file = 0, Path()
    queries: list[str] = []
    with (arguments.folder / ANSWERS).open("a", buffering=1) as answers:
        while True:
            newest = max(arguments.folder.glob("week-*.txt"))
            if newest != file:
                file, queries, number = newest, newest.read_text(encoding="utf-8").splitlines(), 0
            start = time.perf_counter()
            status = _status(connection, queries[number % len(queries)])
            answers.write(f"{int(file.stem[-2:])} {status} {time.perf_counter() - start:.6f}\n")
            number += 1
            time.sleep(PAUSE)


def _status(connection: HTTPConnection, query: str) -> int:
    """Return the status of the answer to a search; 0 if there is none."""
    try:
        connection.request("POST", "/api/v1/search", json.dumps({"text": query}).encode(), JSON)
        answer = connection.getresponse()
        answer.read()
    except (OSError, HTTPException):
        connection.close()
        return 0
    return answer.status


if __name__ == "__main__":
    main()
