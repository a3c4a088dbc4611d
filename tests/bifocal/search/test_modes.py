"""Hybrid search, and results per group."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from bifocal.search import Search, SearchIndex
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.keywords import fuse
from tests.bifocal.search.captioned import ITEMS


class Fixed:
    """Embeds every sentence to the same vector."""

    def embed_sentences(self, sentences: Sequence[str]) -> NDArray[Any]:
        return np.tile([[1.0, 0.0]], (len(sentences), 1))


@pytest.fixture
def search() -> Search:
    angles = np.array([0.4, 0.3, 0.2, 0.5, 0.1])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float16)
    return Search(SearchIndex(ITEMS, vectors), Fixed())  # by vector: e, c, b, a, d


def test_hybrid_search_fuses_vectors_and_words(search: Search) -> None:
    hits = search("harbor", k=5, mode="hybrid")
    by_vector = search("harbor", k=5)
    expected = fuse([[hit.row for hit in by_vector], [3]])
    assert list(expected) != [hit.row for hit in by_vector]
    assert [(hit.row, hit.score) for hit in hits] == list(expected.items())  # the score sorts
    assert list(search("harbor", k=2, offset=1, mode="hybrid")) == hits[1:3]
    assert {hit.row for hit in search("harbor", where={"year": [1, 2]}, mode="hybrid")} == {0, 1}


def test_an_item_found_only_by_words_has_its_probability(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    search.index.calibration = Calibration(-2.0, 3.0, 1.0, 0.5, 0.0, 0.0, 1.0, 10)
    every = {hit.row: hit for hit in search("harbor", k=5)}
    monkeypatch.setattr("bifocal.search.search.FUSED", 1)
    hits = search("harbor", k=2, mode="hybrid")
    assert {hit.row for hit in hits} == {3, 4}
    for hit in hits:
        score, best = np.array([[every[hit.row].score]]), np.array([[every[4].score]])
        assert hit.probability == pytest.approx(
            search.index.calibration.probabilities(score, best).item()
        )


def test_a_query_without_a_known_word_is_answered_by_the_texts(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Fixed, "embed_sentences", lambda self, sentences: np.zeros((len(sentences), 2))
    )
    assert [hit.row for hit in search("harbor", k=5, mode="hybrid")] == [3]
    nothing = search("zebra", k=5, mode="hybrid")
    assert (list(nothing), nothing.found) == ([], False)


def test_results_per_group_are_limited(search: Search) -> None:
    hits = search("x", group="city", k=5)
    assert [hit.id for hit in hits] == ["e", "c", "b", "d"]
    assert [hit.id for hit in search("x", group="city", per_group=2, k=5)] == list("ecbad")
    assert [hit.id for hit in search("x", group="city", k=1, where={"year": {"max": 2}})] == ["b"]
    with pytest.raises(ValueError, match="no metadata 'town'"):
        search("x", group="town")


def test_groups_are_filled_from_deep_results() -> None:
    values = ["common"] * 90 + [f"rare {row}" for row in range(10)]
    angles = np.linspace(0.1, 1.0, 100)
    items = pa.table({"item_id": [str(row) for row in range(100)], "meta.kind": values})
    search = Search(
        SearchIndex(items, np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float16)),
        Fixed(),
    )
    hits = search("x", group="kind", per_group=2, k=6)
    assert [hit.row for hit in hits] == [0, 1, 90, 91, 92, 93]
    assert max(Counter(values[hit.row] for hit in hits).values()) == 2
