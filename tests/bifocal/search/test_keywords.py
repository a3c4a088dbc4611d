"""Search by words, and the fusion of rankings."""

import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bifocal.search import keywords
from bifocal.search.keywords import Keywords, fuse

CITIES = ["Rome", "Oslo", None, "Oslo harbor", "Rome"]
ITEMS = pa.table(
    {
        "item_id": list("abcde"),
        "captions": [
            ["A dog"],
            ["A dog runs.", "A dog jumps"],
            [],
            ["Ships in a harbor"],
            ["A cat"],
        ],
        "meta.city": CITIES,
        "meta.year": [1, 2, 3, 4, 5],
    }
)


def test_keywords_rank_by_words_of_captions_and_texts() -> None:
    searched = Keywords.of(ITEMS)
    assert searched.search("HARBOR", 5).tolist() == [3]
    assert searched.search("a dog", 5).tolist()[0] in (0, 1)
    assert set(searched.search("dog oslo", 5).tolist()) == {0, 1, 3}
    assert searched.search("dog oslo", 1).tolist() == [1]  # the only one with both words
    assert searched.search("dog", 5, np.arange(5) == 0).tolist() == [0]
    assert searched.search("zebra", 5).tolist() == []
    assert Keywords.of(ITEMS.select(["item_id"])).search("dog", 5).tolist() == []


TEXTS = [
    "a Dog a dog",
    "snow, dog_1 & Élan",
    "a a a snow",
    "",
    "été élan DOG",
    "a 2024 snow dog dog",
] * 3


def bm25(texts: list[str], query: str, row: int) -> float:
    """Return the score of an item, by the equation of the class with loops."""
    words = [re.findall(r"\w+", text.lower()) for text in texts]
    mean = sum(map(len, words)) / len(words)
    total = 0.0
    for word in re.findall(r"\w+", query.lower()):
        items, often = sum(word in others for others in words), words[row].count(word)
        idf = math.log(1 + (len(words) - items + 0.5) / (items + 0.5))
        total += idf * often / (often + 1.5 * (1 - 0.75 + 0.75 * len(words[row]) / mean))
    return total


@pytest.mark.parametrize("query", ["DOG", "a snow dog", "élan 2024", "a a dog_1", "nothing"])
def test_keywords_sort_by_the_equation(
    query: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(keywords, "BATCH", 4)
    monkeypatch.setattr(keywords, "SAMPLED", 1)
    scores = [bm25(TEXTS, query, row) for row in range(len(TEXTS))]
    expected = sorted(
        (row for row in range(len(TEXTS)) if scores[row]),
        key=lambda row: (-round(scores[row], 6), row),
    )
    searched = Keywords.of(
        pa.table(
            {"item_id": list(map(str, range(len(TEXTS)))), "captions": [[text] for text in TEXTS]}
        )
    )
    assert searched.search(query, 100).tolist() == expected
    searched.write(tmp_path / "keywords.arrow")
    searched = Keywords.open(tmp_path / "keywords.arrow", len(TEXTS))
    assert searched.search(query, 4).tolist() == expected[:4]
    allowed = np.arange(len(TEXTS)) % 2 == 0
    assert (
        searched.search(query, 4, allowed).tolist() == [row for row in expected if allowed[row]][:4]
    )


def test_fusion_is_the_sum_of_reciprocal_ranks() -> None:
    first, second = [5, 2, 9], [9, 5, 1]
    sums = {5: 1 / 61 + 1 / 62, 2: 1 / 62, 9: 1 / 63 + 1 / 61, 1: 1 / 63}
    fused = fuse([first, second])
    assert list(fused) == sorted(sums, key=lambda row: -sums[row])
    assert fused == pytest.approx(sums)
    assert fuse([]) == {}
