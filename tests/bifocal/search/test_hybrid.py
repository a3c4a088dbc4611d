"""Search by keywords, its fusion with vectors, results per group, and search for regions."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from bifocal.search import Search, SearchIndex
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.keywords import Keywords, fuse
from bifocal.search.regions import search_regions

CITIES = ["Rome", "Oslo", None, "Oslo harbor", "Rome"]
ITEMS = pa.table(
    {
        "item_id": list("abcde"),
        "captions": [["A dog"], ["A dog runs.", "A dog jumps"], [], ["Ships in a harbor"], ["A cat"]],
        "meta.city": CITIES,
        "meta.year": [1, 2, 3, 4, 5],
    }
)


class Fixed:
    """Embeds every sentence to the same vector."""

    def embed_sentences(self, sentences: Sequence[str]) -> NDArray[Any]:
        return np.tile([[1.0, 0.0]], (len(sentences), 1))


@pytest.fixture
def search() -> Search:
    angles = np.array([0.4, 0.3, 0.2, 0.5, 0.1])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float16)
    return Search(SearchIndex(ITEMS, vectors), Fixed())  # by vector: e, c, b, a, d


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


def test_hybrid_search_fuses_vectors_and_words(search: Search) -> None:
    hits = search("harbor", k=5, mode="hybrid")
    by_vector = search("harbor", k=5)
    expected = fuse([[hit.row for hit in by_vector], [3]])
    assert list(expected) != [hit.row for hit in by_vector]
    assert [(hit.row, hit.score) for hit in hits] == list(expected.items())  # the score sorts
    assert search("harbor", k=2, offset=1, mode="hybrid") == hits[1:3]
    assert {hit.row for hit in search("harbor", where={"year": [1, 2]}, mode="hybrid")} == {0, 1}


def test_an_item_found_only_by_words_has_its_probability(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    search.index.calibration = Calibration(-2.0, 3.0, 1.0, 0.5, 0.0, 0.0, 1.0, 10)
    every = {hit.row: hit for hit in search("harbor", k=5)}
    monkeypatch.setattr("bifocal.search.search.FUSED", 1)
    hits = search("harbor", k=2, mode="hybrid")
    assert {hit.row for hit in hits} == {3, 4}
    for hit in hits:
        score, best = np.array([[every[hit.row].score]]), np.array([[every[4].score]])
        assert hit.probability == pytest.approx(search.index.calibration.probabilities(score, best).item())


def test_results_per_group_are_limited(search: Search) -> None:
    hits = search("x", group="city", k=5)
    assert [hit.item_id for hit in hits] == ["e", "c", "b", "d"]
    assert [hit.item_id for hit in search("x", group="city", per_group=2, k=5)] == list("ecbad")
    assert [hit.item_id for hit in search("x", group="city", k=1, where={"year": {"max": 2}})] == ["b"]
    with pytest.raises(ValueError, match="no metadata 'town'"):
        search("x", group="town")


def test_groups_are_filled_from_deep_results() -> None:
    values = ["common"] * 90 + [f"rare {row}" for row in range(10)]
    angles = np.linspace(0.1, 1.0, 100)
    items = pa.table({"item_id": [str(row) for row in range(100)], "meta.kind": values})
    search = Search(SearchIndex(items, np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float16)), Fixed())
    hits = search("x", group="kind", per_group=2, k=6)
    assert [hit.row for hit in hits] == [0, 1, 90, 91, 92, 93]
    assert max(Counter(values[hit.row] for hit in hits).values()) == 2


def test_region_search_returns_the_best_region_of_each_item(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    writer = CollectionWriter(tmp_path, Description(ModelIdentity("m", None, "00"), ".", 2, 3), items_per_shard=3)
    scores, phrase = {}, random.normal(size=3).astype(np.float32)
    for number, count in enumerate([4, 1, 5, 2, 3]):
        vectors = random.normal(size=(count, 3)).astype(np.float16)
        boxes = np.arange(4.0 * count).reshape(count, 4)
        writer.add(Item(f"i{number}", None, "", 9, 9), np.array([1.0, 0.0]), vectors, boxes)
        of_regions = [float(np.dot(vector.astype(np.float32), phrase)) for vector in vectors]
        best = max(range(count), key=of_regions.__getitem__)
        scores[f"i{number}"] = of_regions[best], tuple((boxes[best] / 9).tolist())
    writer.finish(deleted=[Item("gone", None, "", 9, 9)])
    for k in (1, 3, 9):
        hits = search_regions(Collection.open(tmp_path), lambda vectors: vectors @ phrase, k)
        expected = sorted(scores, key=lambda name: -scores[name][0])[:k]
        assert [f"i{hit.row}" for hit in hits] == expected
        assert [hit.box for hit in hits] == [scores[name][1] for name in expected]
        assert [hit.score for hit in hits] == pytest.approx([scores[name][0] for name in expected], rel=1e-5)


def test_region_search_needs_regions(tmp_path: Path) -> None:
    CollectionWriter(tmp_path, Description(ModelIdentity("m", None, "00"), ".", 2, None)).finish()
    with pytest.raises(ValueError, match="the collection has no regions"):
        search_regions(Collection.open(tmp_path), lambda vectors: vectors[:, 0], 1)
