"""A canary of two replicas of the real service behind nginx, one of which is killed:
``make test-real``."""

import json
import shutil
import threading
from collections import Counter
from functools import partial
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any

import mlflow
import pytest

from bifocal.search.trained_model import TrainedModel
from bifocal.serving.canary.report import RUNNING, ClientBucket
from components.cluster import canary as module
from components.cluster.steps import VERDICT, CanaryParams
from runtime.mlflow import get_version_number
from runtime.mlflow.releases import read_digest
from runtime.s3.storage import Storage
from tests.bifocal.serving.server import JSON, Server
from tests.mlflow_server import free_port
from tests.pipelines.releases import add_release, move_alias, register, wait, write_released_run
from tests.rehearsals.servers.debian import nginx

CLIENTS, SEARCHES, KILLED_AFTER, SHARE = 200, 600, 500, 0.5
QUERIES = ("a red star", "two blue circles", "a green cross on sand", "a heart in the snow")
FOLDER = "s3://bucket/canary"
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(0),
    pytest.mark.skipif(
        shutil.which("nginx") is None, reason="nginx is not installed: Debian's package nginx-light"
    ),
]


class Clients(threading.Thread):
    """Clients that search through the proxy, one after another, until the verdict."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.stopped = port, threading.Event()
        self.answers: Counter[int] = Counter()
        self.right = 0
        self.paused = threading.Event()
        self.models: dict[str, set[str]] = {}

    def run(self) -> None:
        for number in count():
            while self.paused.is_set():
                self.stopped.wait(0.05)
            if self.stopped.is_set():
                return
            client, query = f"client {number % CLIENTS}", QUERIES[number % len(QUERIES)]
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
            body = json.dumps({"text": query, "k": 5})
            connection.request("POST", "/api/v1/search", body, JSON | {"bifocal-client": client})
            answer = connection.getresponse()
            content = json.loads(answer.read())
            connection.close()
            self.answers[answer.status] += 1
            if answer.status == 200 and len(content["results"]) == 5:
                self.models.setdefault(client, set()).add(content["model"])
                self.right += 1

    def wait_for(self, answers: int) -> None:
        """Wait until the clients have so many answers."""
        while self.answers.total() < answers:
            assert self.is_alive()
            self.stopped.wait(0.05)


def compares(replica: Server) -> bool:
    """Whether a replica has loaded both releases."""
    try:
        return bool(json.loads(replica.get("/api/v1/comparison")[1])["state"] == RUNNING)
    except OSError:
        return False


def test_counts_of_two_replicas_and_of_a_killed_one_decide(
    demo: TrainedModel, tmp_path: Path, mlflow_store: str, s3: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(mlflow_store)
    for name, sign, alias in (("a", 1, "champion"), ("b", -1, "candidate")):
        run = write_released_run(demo, tmp_path / name, "", sign)
        move_alias(register(run), alias)
        add_release(run)
    (tmp_path / "registration.json").write_text(json.dumps({"model": "bifocal", "version": 2}))
    (tmp_path / "out").mkdir()
    options = (
        "--model",
        "models:/bifocal@champion",
        "--canary",
        "models:/bifocal@candidate",
        "--share",
        SHARE,
    )
    replicas = [Server(free_port(), tmp_path / f"{name}.log", *options) for name in ("one", "two")]
    params = CanaryParams(
        seed=1,
        rule={
            "searches": SEARCHES,
            "min_searches": 100,
            "error_rate": 0.05,
            "max_rises": {"errors": 0.1, "nothing_found": 0.1},
            "max_drops": {},
            "max_ratios": {},
        },
        services=[f"http://127.0.0.1:{replica.port}" for replica in replicas],
        folder=FOLDER,
        hours=0.1,
        champion="champion",
        lock_timeout=60,
    )
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.5)
    outputs: dict[str, Any] = {}
    try:
        for replica in replicas:
            replica.start()
        for replica in replicas:
            wait(partial(compares, replica))
        with nginx(tmp_path, [replica.port for replica in replicas]) as port:
            clients = Clients(port)
            step = threading.Thread(
                target=lambda: outputs.update(
                    module.run(params, registration=tmp_path, canary=tmp_path / "out")
                )
            )
            clients.start()
            step.start()
            clients.wait_for(KILLED_AFTER)
            replicas[0].kill()
            clients.wait_for(KILLED_AFTER + 100)  # the other replica answers
            clients.paused.set()
            replicas[0].start()
            wait(lambda: compares(replicas[0]))
            clients.paused.clear()
            step.join(300)
            clients.stopped.set()
            clients.join(60)
    finally:
        for replica in replicas:
            if replica.process is not None and replica.process.poll() is None:
                replica.kill()
    assert outputs == {VERDICT: "promote"}
    assert clients.answers == {200: clients.right}  # nginx asks the other replica
    # All replicas and processes decide alike on a client.
    salt = read_digest(get_version_number("bifocal", 2))
    for client, versions in clients.models.items():
        (version,) = versions
        expected = 2 if ClientBucket.of(client, salt).position < SHARE else 1
        assert version.startswith(f"bifocal version {expected}"), client
    record = json.loads((tmp_path / "out/decision.json").read_text())
    counted = {arm: sum(record[f"counts_{arm}"]["searches"]) for arm in ("champion", "candidate")}
    assert min(counted.values()) >= SEARCHES
    assert sum(counted.values()) <= clients.answers.total()
    # The counts of the killed process were kept.
    assert len(Storage().listing(FOLDER)) == 3
    assert (
        mlflow.MlflowClient().get_model_version("bifocal", "2").tags["promotion.online"]
        == "promote"
    )
