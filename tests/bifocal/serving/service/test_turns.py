"""Clients take turns: whoever asks for much waits for their own work only."""

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from bifocal.serving.service.live import MAX_COST, LoadedRelease, batches, cost
from bifocal.serving.service.turns import (
    MOST_SECONDS,
    Client,
    Threads,
    Turns,
    client_of_request,
)


async def as_client(name: str, work: Any) -> Any:
    client_of_request.set(Client(name, name, []))
    return await work()


def test_a_free_slot_goes_to_each_client_in_turn() -> None:
    order: list[str] = []

    async def run() -> None:
        turns = Turns(1)

        async def work() -> None:
            async with turns.turn():
                order.append(client_of_request.get().payer)
                await asyncio.sleep(0)

        await asyncio.gather(*(as_client(name, work) for name in "aaaabbc"))

    asyncio.run(run())
    assert "".join(order) == "aabcaba"  # the first one did not wait


def test_a_client_has_a_part_of_the_slots_and_a_cancelled_one_leaves_its_slot() -> None:
    async def run() -> None:
        turns, entered, leave = Turns(3, of_client=2), [], asyncio.Event()

        async def work() -> None:
            async with turns.turn():
                entered.append(client_of_request.get().payer)
                await leave.wait()

        tasks = [asyncio.create_task(as_client(name, work)) for name in "aaaabb"]
        await asyncio.sleep(0.01)
        assert sorted(entered) == ["a", "a", "b"]
        tasks[0].cancel()  # has a slot
        tasks[2].cancel()  # waits
        await asyncio.sleep(0.01)
        assert sorted(entered) == ["a", "a", "b", "b"]
        leave.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(entered) == 5
        async with asyncio.timeout(1), turns.turn(), turns.turn(), asyncio.timeout(1):
            pass

    asyncio.run(run())


@given(st.lists(st.text("ab", max_size=1500), max_size=60))
def test_batches_have_all_sentences_and_a_bounded_cost(sentences: list[str]) -> None:
    found = list(batches(sentences))
    assert [sentence for batch in found for sentence in batch] == sentences
    assert all(len(batch) == 1 or cost(batch) <= MAX_COST for batch in found)


@pytest.mark.parametrize("letters", [20, 1000])
def test_a_sentence_of_another_client_waits_for_one_batch(letters: int) -> None:
    started, finish, batches_run = threading.Event(), threading.Event(), list[list[str]]()

    def encode(sentences: list[str]) -> np.ndarray:
        batches_run.append(list(sentences))
        if len(batches_run) == 1:
            started.set()
            finish.wait(10)
        return np.zeros((len(sentences), 1))

    async def run() -> int:
        model: Any = SimpleNamespace(embedder=SimpleNamespace(embed_sentences=encode))
        loaded = LoadedRelease(model, Threads(1))
        much = [
            [f"{request} {row} ".ljust(letters, "x") for row in range(20)] for request in range(40)
        ]
        tasks = [
            asyncio.create_task(as_client("a", lambda part=part: loaded.embed(part)))
            for part in much
        ]
        await asyncio.to_thread(started.wait, 10)
        other = asyncio.create_task(as_client("b", lambda: loaded.embed(["a dog"])))
        await asyncio.sleep(0.01)
        finish.set()
        await other
        before = next(place for place, batch in enumerate(batches_run) if "a dog" in batch)
        await asyncio.gather(*tasks)
        return before

    assert asyncio.run(run()) <= (1 if letters == 20 else 3)


def test_sentences_of_a_request_are_encoded_for_a_limited_processor_time() -> None:
    encoded: list[str] = []

    def encode(sentences: list[str]) -> np.ndarray:
        end = time.thread_time() + MOST_SECONDS / 3
        while time.thread_time() < end:
            pass
        encoded.extend(sentences)
        return np.zeros((len(sentences), 1))

    async def embed(count: int) -> int:
        model: Any = SimpleNamespace(embedder=SimpleNamespace(embed_sentences=encode))
        loaded = LoadedRelease(model, Threads(1))
        return len(await as_client("a", lambda: loaded.embed(["a" * 1000] * count)))

    assert asyncio.run(embed(3)) == len(encoded) == 3
    with pytest.raises(HTTPException, match="processor time: send fewer or shorter sentences"):
        asyncio.run(embed(1000))
    assert len(encoded) <= 7
