"""Samples of queries, and queries of unknown words."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bifocal.draws import drawn
from bifocal.monitoring.arrivals import Arrivals
from bifocal.monitoring.observations import Count, Observer, unknown_words
from bifocal.onnx.text.captions import Vocabulary
from bifocal.onnx.text.sentences import SentenceReader
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.index.build import index_of_collection
from tests.bifocal.small_collection import write_collection


@pytest.mark.parametrize("queries", [["a red star", "zebra", "red zebra"], ["zebra"]])
def test_a_query_without_a_known_word_is_counted_and_not_embedded(
    tmp_path: Path, queries: list[str]
) -> None:
    """The review of commit 097c66e: one such query of a model on bags of words ended the
    monitoring."""
    collection = write_collection(tmp_path / "collection", ["star", "sea", "wood"])
    Vocabulary(["a", "red", "star"]).save(tmp_path / Vocabulary.FILE)

    def embed_sentences(sentences: list[str]) -> np.ndarray:
        return np.array([[float(sentence != "zebra"), 0] for sentence in sentences], np.float32)

    model: Any = SimpleNamespace(
        sentences=SentenceReader(tmp_path), embed_sentences=embed_sentences
    )
    index = index_of_collection(collection, None)
    index.calibration = Calibration(-6.0, 8.0, 6.0, 0.5, 0.0, 0.05, 0.9, 100)
    seen = Observer(model, collection, index).observe(Arrivals([], {}), queries, 10, 10)
    assert len(seen.queries) == len(queries) - 1
    assert seen.unknown_words is not None
    assert seen.unknown_words.total == len(queries)
    assert seen.nothing_found is not None
    assert seen.nothing_found.total == len(queries)
    assert seen.nothing_found.hits >= 1


def test_drawn_queries_keep_their_order() -> None:
    chosen = drawn([str(number) for number in range(100)], 10, 1)
    assert len(chosen) == 10
    assert chosen == sorted(chosen, key=int)
    assert drawn(["a", "b"], 10, 1) == ["a", "b"]


def test_queries_with_an_unknown_word_are_counted(tmp_path: Path) -> None:
    Vocabulary(["a", "red", "star"]).save(tmp_path / Vocabulary.FILE)
    model: Any = SimpleNamespace(sentences=SentenceReader(tmp_path))
    queries = ["A red star!", "a blue star", "zebra", "a red red"]
    assert unknown_words(model, queries) == (
        Count(2, 4),
        ["A red star!", "a blue star", "a red red"],
    )
    assert unknown_words(model, []) == (Count(0, 0), [])


def test_model_of_subwords_knows_every_word() -> None:
    model: Any = SimpleNamespace(sentences=SimpleNamespace(known=lambda _: None))
    assert unknown_words(model, ["zebra"]) == (None, ["zebra"])
