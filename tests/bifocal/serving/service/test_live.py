"""What changes while requests are answered: the model, under load and kills, batches of sentences,
and deletions."""

import asyncio
import json
import resource
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bifocal.durable import change
from bifocal.search.deletion import delete_from_collection
from bifocal.search.index.index import SearchIndex
from bifocal.search.trained_model import TrainedModel
from bifocal.serving.service.live import Deletions, LoadedRelease
from bifocal.serving.service.turns import Threads
from tests.bifocal.serving.runs import COLLECTION, replace_run, write_run
from tests.bifocal.serving.server import JSON, Server, running_server

CLIENTS = 4
QUERY = json.dumps({"text": "three red stars on a beach", "k": 3}).encode()


class Load:
    """Clients that repeat one search until they are stopped; they connect again after a broken
    connection."""

    def __init__(self, server: Server) -> None:
        self.server, self.stopped = server, threading.Event()
        self.answers: list[tuple[int, bytes]] = []
        self.broken = 0
        self.threads = [threading.Thread(target=self._repeat) for _ in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until there are ``count`` more answers."""
        wanted, deadline = len(self.answers) + count, time.monotonic() + 60
        while len(self.answers) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _repeat(self) -> None:
        connection = self.server.connect()
        while not self.stopped.is_set():
            try:
                connection.request("POST", "/api/v1/search", QUERY, JSON)
                answer = connection.getresponse()
                self.answers.append((answer.status, answer.read()))
            except (OSError, HTTPException):
                self.broken += 1
                connection.close()
                time.sleep(0.05)
        connection.close()


@pytest.fixture(scope="module")
def changing(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run, whose parts are replaced."""
    return Path(shutil.copytree(run_folder, tmp_path_factory.mktemp("changing") / "run"))


@pytest.fixture(scope="module")
def server(changing: Path) -> Iterator[Server]:
    """The service of the copy."""
    with running_server(changing) as running:
        yield running


def found(answer: bytes) -> tuple[set[str], list[float]]:
    """Return the prefixes of the ids, and the scores."""
    results = json.loads(answer)["results"]
    return {result["id"].partition("-")[0] for result in results}, [
        result["score"] for result in results
    ]


def test_model_and_collection_are_replaced_together_without_a_failed_request(
    server: Server, changing: Path, demo: TrainedModel, tmp_path: Path
) -> None:
    # The second model negates its vectors and its queries: the scores differ if one of the two
    # belongs to the other.
    other = write_run(demo, tmp_path / "other", prefix="other-", sign=-1)
    first = Path(shutil.copytree(changing, tmp_path / "first"))
    with Load(server) as load:
        load.wait_for(20)
        for new, prefix in ((other, "other"), (first, "test")):
            replace_run(changing, new)
            deadline = time.monotonic() + 60
            while found(load.answers[-1][1])[0] != {prefix}:
                assert time.monotonic() < deadline, server.log.read_text()[-2000:]
                load.wait_for(1)
    assert {status for status, _ in load.answers} == {200}
    assert load.broken == 0
    expected = found(load.answers[0][1])[1]
    for _, answer in load.answers:
        prefixes, scores = found(answer)
        assert len(prefixes) == 1
        assert scores == pytest.approx(expected, abs=1e-4)
    assert {prefix for _, answer in load.answers for prefix in found(answer)[0]} == {
        "test",
        "other",
    }


def test_a_damaged_collection_leaves_the_previous_one_in_use(
    server: Server, changing: Path
) -> None:
    description = changing / "artifacts" / "collection" / "collection.json"
    content = description.read_text()
    description.write_text(content.replace('"sha256": "', '"sha256": "0'))
    deadline = time.monotonic() + 60
    while b"older model" not in (ready := server.get("/readyz"))[1]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ready[0] == 200
    assert b"another model" not in ready[1]
    assert any("another model" in entry.get("reason", "") for entry in server.entries())
    assert server.search(text="a star")["results"]
    description.write_text(content)
    while b'"ready"' not in server.get("/readyz")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_deletion_in_the_files_comes_into_use_without_a_failed_request(
    server: Server, changing: Path, tmp_path: Path
) -> None:
    previous = shutil.copytree(changing / COLLECTION, tmp_path / "previous")
    deleted = server.search(**json.loads(QUERY))["results"][0]["id"]
    server.get(f"/api/v1/thumbnail?id={deleted}")
    with Load(server) as load:
        load.wait_for(10)
        with change(changing) as changed:
            delete_from_collection(changed, changing / COLLECTION, [deleted])
        deadline = time.monotonic() + 60
        while deleted in load.answers[-1][1].decode():
            assert time.monotonic() < deadline, server.log.read_text()[-2000:]
            load.wait_for(1)
    assert load.broken == 0
    assert {status for status, _ in load.answers} == {200}
    assert server.get(f"/api/v1/thumbnail?id={deleted}")[0] == 404
    for mode in ("hybrid", "regions"):
        assert deleted not in [
            result["id"] for result in server.search(text="a red star", mode=mode, k=100)["results"]
        ]
    shutil.rmtree(changing / COLLECTION)
    previous.rename(changing / COLLECTION)
    while server.get(f"/api/v1/thumbnail?id={deleted}")[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_after_sigkill_under_load_it_is_ready_again_and_clients_see_connection_errors_only(
    server: Server,
) -> None:
    deleted = server.search(text="a purple cross", k=1)["results"][0]["id"]
    assert server.delete(deleted) == 204
    with Load(server) as load:
        load.wait_for(10)
        server.kill()
        server.start()
        server.wait_until_ready()
        load.wait_for(10)
    assert load.broken > 0
    assert {status for status, _ in load.answers} == {200}
    assert deleted not in [
        result["id"] for result in server.search(text="a purple cross", k=50)["results"]
    ]


def test_requests_that_wait_are_encoded_together_and_one_that_fails_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bifocal.serving.service.live.MAX_COST", 4)
    batches: list[list[str]] = []

    def encode(sentences: list[str]) -> np.ndarray:
        batches.append(list(sentences))
        if "bad" in sentences:
            raise ValueError("bad is refused")
        return np.array([[len(sentence), ord(sentence[0])] for sentence in sentences], float)

    async def answer_all() -> list[object]:
        model: Any = SimpleNamespace(embedder=SimpleNamespace(embed_sentences=encode))
        loaded = LoadedRelease(model, Threads(1))
        requests = [["one"], ["two", "three"], ["bad"], ["one"], ["four", "five", "six"]]
        return await asyncio.gather(*map(loaded.embed, requests), return_exceptions=True)

    first, second, third, fourth, fifth = asyncio.run(answer_all())
    assert first.tolist() == fourth.tolist() == [[3, ord("o")]]
    assert second.tolist() == [[3, ord("t")], [5, ord("t")]]
    assert fifth.tolist() == [[4, ord("f")], [4, ord("f")], [3, ord("s")]]
    assert isinstance(third, ValueError)
    assert [
        "one",
        "two",
        "three",
        "bad",
    ] in batches  # encoded together before each was encoded by itself


def test_deletions_survive_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "deleted.jsonl"
    Deletions(file).add('a "quoted"\nid')
    with file.open("a") as opened:
        opened.write('"cut of')
    kept = Deletions(file)
    assert list(kept) == ['a "quoted"\nid']
    kept.add("second")
    assert set(Deletions(file)) == {'a "quoted"\nid', "second"}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Fail to write beyond ``size`` bytes of a file, as on a full disk."""
    previous, handler = (
        resource.getrlimit(resource.RLIMIT_FSIZE),
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, previous[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("free", [0, 1, 5, 8])
def test_a_failed_deletion_leaves_the_file_as_it_was(tmp_path: Path, free: int) -> None:
    file = tmp_path / "deleted.jsonl"
    deletions = Deletions(file)
    deletions.add("first")
    before = file.read_bytes()
    with largest_file(len(before) + free), pytest.raises(OSError, match=r"space|large"):
        deletions.add("second")
    assert file.read_bytes() == before
    assert "second" not in deletions
    deletions.add("third")
    assert set(Deletions(file)) == set(deletions) == {"first", "third"}


def test_indexes_leave_deleted_items_out_now_and_later() -> None:
    index, other = (
        SearchIndex.of([f"{start + row}" for row in range(4)], np.eye(4)) for start in (0, 2)
    )
    deletions = Deletions()
    deletions.include(["1", "3", "9"])
    for applied in (index, other):
        deletions.apply(applied)
        deletions.apply(applied)
    assert (list(index), list(other), len(index), len(other)) == (["0", "2"], ["2", "4", "5"], 2, 3)
    deletions.add("0")
    assert ("0" in index, index.allowed().tolist()) == (False, [False, False, True, False])
    assert not np.any(index.allowed(None, ["2"]))
    deletions.add("0")
    assert len(index) == 1


def test_two_services_with_one_file_see_the_deletions_of_each_other(tmp_path: Path) -> None:
    file = tmp_path / "deleted.jsonl"
    first, second = Deletions(file), Deletions(file)
    for number in range(3):
        first.add(f"first {number}")
        second.add(f"second {number}")
    with file.open("a") as opened:
        opened.write('"cut of')
    for deletions in (first, second):
        deletions.read_file()
        deletions.read_file()
        assert sorted(deletions) == [
            f"{name} {number}" for name in ("first", "second") for number in range(3)
        ]
