"""Search by words, and the fusion of rankings."""

import numpy as np
import pyarrow as pa
import pytest

from bifocal.search.keywords import Keywords, fuse

CITIES = ["Rome", "Oslo", None, "Oslo harbor", "Rome"]
ITEMS = pa.table(
    {
        "item_id": list("abcde"),
        "captions": [["A dog"], ["A dog runs.", "A dog jumps"], [], ["Ships in a harbor"], ["A cat"]],
        "meta.city": CITIES,
        "meta.year": [1, 2, 3, 4, 5],
    }
)


def test_keywords_rank_by_words_of_captions_and_texts() -> None:
    keywords = Keywords(ITEMS)
    assert keywords.search("HARBOR", 5).tolist() == [3]
    assert keywords.search("a dog", 5).tolist()[0] in (0, 1)
    assert set(keywords.search("dog oslo", 5).tolist()) == {0, 1, 3}
    assert keywords.search("dog oslo", 1).tolist() == [1]  # the only one with both words
    assert keywords.search("dog", 5, np.arange(5) == 0).tolist() == [0]
    assert keywords.search("zebra", 5).tolist() == []
    assert Keywords(ITEMS.select(["item_id"])).search("dog", 5).tolist() == []


def test_fusion_is_the_sum_of_reciprocal_ranks() -> None:
    first, second = [5, 2, 9], [9, 5, 1]
    sums = {5: 1 / 61 + 1 / 62, 2: 1 / 62, 9: 1 / 63 + 1 / 61, 1: 1 / 63}
    fused = fuse([first, second])
    assert list(fused) == sorted(sums, key=lambda row: -sums[row])
    assert fused == pytest.approx(sums)
    assert fuse([]) == {}
