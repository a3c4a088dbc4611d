"""Concatenated vectors are the parts' vectors, one after the other."""

from pathlib import Path

import numpy as np
import pytest

from bifocal.registry import build
from bifocal.text.store import collate
from bifocal.text.vectorizers import TFIDF, Concatenated, MeanWordVectors, Word2Vec
from bifocal.text.vectorizers.base import PACKAGE, Vectorizer

CAPTIONS = ["a dog runs", "two birds", "", "dogs and a bird"]
MEAN = {"name": "MeanWordVectors", "dim": 3, "epochs": 1}


def dense(vectorizer: Vectorizer) -> np.ndarray:
    vectorizer.fit(CAPTIONS, seed=0)
    encoded = vectorizer.transform(CAPTIONS)
    return collate(vectorizer.format, encoded.values, encoded.indices).values.numpy()


@pytest.mark.parametrize(
    "order", [["TFIDF", MEAN], [MEAN, "TFIDF"], [MEAN, MEAN], ["TFIDF", MEAN, "TFIDF"]]
)
def test_values_are_those_of_the_parts_in_their_order(order: list[object]) -> None:
    expected = np.concatenate([dense(build(PACKAGE, ref)) for ref in order], axis=1)
    vectorizer = Concatenated([build(PACKAGE, ref) for ref in order])
    np.testing.assert_array_equal(dense(vectorizer), expected)
    assert vectorizer.format.dim == expected.shape[1]
    assert vectorizer.format.name == ("sparse" if "TFIDF" in order else "vectors")


def test_files_of_a_killed_save_are_replaced(tmp_path: Path) -> None:
    vectorizer = Concatenated([TFIDF(), TFIDF()])
    expected = dense(vectorizer)
    for _ in range(2):
        vectorizer.save(tmp_path)
    restored = Concatenated([TFIDF(), TFIDF()])
    restored.load(tmp_path)
    encoded = restored.transform(CAPTIONS)
    values = collate(restored.format, encoded.values, encoded.indices).values.numpy()
    np.testing.assert_array_equal(values, expected)


def test_parts_without_one_vector_per_caption_are_refused() -> None:
    with pytest.raises(
        ValueError, match="Word2Vec gives tokens, and Concatenated needs one vector per caption"
    ):
        Concatenated([TFIDF(), Word2Vec(dim=3, min_count=1, epochs=1)]).fit(CAPTIONS, seed=0)
    with pytest.raises(ValueError, match="Concatenated has 1 vectorizers: give two or more"):
        Concatenated([MeanWordVectors()]).fit(CAPTIONS, seed=0)
