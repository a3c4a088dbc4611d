"""Batches of sentences."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bifocal.serving.service.live.batching import SentenceBatcher


def test_requests_that_wait_are_encoded_together_and_one_that_fails_fails_alone() -> None:
    batches: list[list[str]] = []

    def encode(sentences: list[str]) -> np.ndarray:
        batches.append(list(sentences))
        if "bad" in sentences:
            raise ValueError("bad is refused")
        return np.array([[len(sentence), ord(sentence[0])] for sentence in sentences], float)

    async def answer_all() -> list[object]:
        with ThreadPoolExecutor(1) as executor:
            batcher = SentenceBatcher(encode, executor, max_sentences=4)
            requests = [["one"], ["two", "three"], ["bad"], ["one"], ["four", "five", "six"]]
            return await asyncio.gather(*map(batcher.embed, requests), return_exceptions=True)

    first, second, third, fourth, fifth = asyncio.run(answer_all())
    assert first.tolist() == fourth.tolist() == [[3, ord("o")]]
    assert second.tolist() == [[3, ord("t")], [5, ord("t")]]
    assert fifth.tolist() == [[4, ord("f")], [4, ord("f")], [3, ord("s")]]
    assert isinstance(third, ValueError)
    assert ["one", "two", "three", "bad"] in batches  # encoded together before each was encoded by itself
