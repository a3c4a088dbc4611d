"""The servers of the year: MLflow on PostgreSQL, two replicas of the service behind nginx, and
clients that check."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.bifocal.serving.server import ADMIN_KEY, JSON, Server
from tests.mlflow_server import free_port, start_server, stop_server, wait_for_server

OPTIONS = (
    "--model",
    "models:/bifocal@champion",
    "--canary",
    "models:/bifocal@candidate",
    "--share",
    0.5,
    "--poll",
    2,
)
CLIENTS, K, PAUSE, SECONDS = 60, 5, 0.05, 900
LAG = 10.0
"""Seconds until every replica has read a deletion from the registry."""
TOLERANCE = 2e-3
"""Of a score: vectors are stored as float16."""


@dataclass
class Truth:
    """What an answer may have: all items with a vector, items that every replica has, and times of
    deletions."""

    vectors: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    deleted: dict[str, float] = field(default_factory=dict)
    _everywhere: tuple[list[str], NDArray[np.float32]] = ([], np.zeros((0, 0), np.float32))

    def set_everywhere(self, items: Sequence[str]) -> None:
        """Name the items that the release of every replica has."""
        self._everywhere = list(items), np.stack([self.vectors[item] for item in items])

    def fault(
        self, query: NDArray[np.float32], results: Sequence[dict[str, Any]], asked: float
    ) -> str | None:
        """Return what is wrong with the results of a query that was asked at a time; None if
        nothing is."""
        found = {result["id"]: result["score"] for result in results}
        if len(found) != K or list(found.values()) != sorted(found.values(), reverse=True):
            return f"{len(found)} results, or in the wrong order"
        for item, score in found.items():
            if asked > self.deleted.get(item, asked) + LAG:
                return f"the deleted item {item} returned"
            if (
                item not in self.vectors
                or abs(score - float(self.vectors[item] @ query)) > TOLERANCE
            ):
                return f"{item} has the score {score}"
        items, matrix = self._everywhere
        scores = matrix @ query
        best = [
            row
            for row in np.argsort(-scores)[: K + len(self.deleted)]
            if items[row] not in self.deleted
        ]
        missing = min(found.values()) < scores[best[K - 1]] - TOLERANCE
        return f"a better item than {min(found.values())} is missing" if missing else None


class Clients(threading.Thread):
    """Clients that search through the proxy, one after another, and check each answer."""

    def __init__(
        self, port: int, truth: Truth, queries: Sequence[str], vectors: NDArray[np.float32]
    ) -> None:
        super().__init__(daemon=True)
        self.port, self.truth, self.queries, self.vectors = port, truth, queries, vectors
        self.answers, self.faults, self.stopped = 0, list[str](), threading.Event()

    def run(self) -> None:
        for number in count():
            if self.stopped.is_set():
                return
            row, asked = number % len(self.queries), time.monotonic()
            fault = self._ask(f"client {number % CLIENTS}", row, asked)
            self.answers += 1
            if fault is not None:
                self.faults.append(fault)
            self.stopped.wait(PAUSE)

    def _ask(self, client: str, row: int, asked: float) -> str | None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            body = json.dumps({"text": self.queries[row], "k": K})
            connection.request("POST", "/api/v1/search", body, JSON | {"bifocal-client": client})
            answer = connection.getresponse()
            content = json.loads(answer.read())
        except (OSError, HTTPException, ValueError) as error:
            return f"no answer: {error!r}"
        finally:
            connection.close()
        if answer.status != 200:
            return f"status {answer.status}: {content}"
        return self.truth.fault(self.vectors[row], content["results"], asked)

    def wait_for(self, answers: int) -> None:
        """Wait until so many searches are answered."""
        while self.answers < answers:
            assert self.is_alive()
            self.stopped.wait(0.05)

    def delete(self, item: str) -> int:
        """Delete an item through the proxy; return the status."""
        self.truth.deleted[item] = inf  # from now on, answers may have it or not
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request(
            "DELETE", f"/api/v1/item?id={item}", headers={"authorization": f"Bearer {ADMIN_KEY}"}
        )
        answer = connection.getresponse()
        answer.read()
        connection.close()
        self.truth.deleted[item] = time.monotonic()
        return answer.status


class Registry:
    """MLflow's server on PostgreSQL; its port stays."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address, self.port = folder, address, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.process = start_server(self.folder, self.port, self.address)
        wait_for_server(self.port)

    def kill(self) -> None:
        """Send SIGKILL to the server and its workers."""
        if self.process is not None:
            stop_server(self.process)
            self.process = None


class Replicas:
    """Two processes of the service."""

    def __init__(self, folder: Path) -> None:
        self.servers = [
            Server(free_port(), folder / f"{name}.log", *OPTIONS) for name in ("one", "two")
        ]

    def start(self) -> None:
        """Start both, and wait until both answer."""
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait_until_ready()

    def kill(self) -> None:
        """Send SIGKILL to those that run."""
        for server in self.servers:
            if server.process is not None and server.process.poll() is None:
                server.kill()

    def wait_for(self, release: str) -> None:
        """Wait until both answer with a release as the champion."""
        _wait(lambda: all(release[:12] in _answer(server, "/readyz") for server in self.servers))

    def wait_for_comparison(self) -> None:
        """Wait until both compare the candidate."""
        _wait(
            lambda: all(
                '"running"' in _answer(server, "/api/v1/comparison") for server in self.servers
            )
        )


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def _answer(server: Server, path: str) -> str:
    try:
        return server.get(path)[1].decode()
    except OSError:
        return ""


def retried(step: Callable[[], Any], restart: Callable[[], None]) -> Any:
    """Run a step that fails while a server is away, and again when it is back."""
    try:
        step()
    except OSError:
        restart()
        return step()
    raise AssertionError("the step did not need the server")
