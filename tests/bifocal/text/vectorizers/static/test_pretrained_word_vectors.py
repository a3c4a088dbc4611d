"""PretrainedWordVectors: vectors of unknown words, and missing vectors."""

from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from bifocal.text.vectorizers import PretrainedWordVectors

WORDS = ["dog", "cat", "café", "UNK", "犬", "unused"]
DIM = 5
CAPTIONS = ["A dog and a café", "a zebra"]


@pytest.fixture
def keyed() -> KeyedVectors:
    keyed = KeyedVectors(DIM)
    keyed.add_vectors(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), DIM)).astype(np.float32))
    return keyed


def write(keyed: KeyedVectors, directory: Path) -> Path:
    path = directory / "words.vec"
    keyed.save_word2vec_format(path)
    return path


def fit(keyed: KeyedVectors, directory: Path, **arguments: object) -> tuple[PretrainedWordVectors, dict[str, float]]:
    vectorizer = PretrainedWordVectors(path=write(keyed, directory), **arguments)
    return vectorizer, vectorizer.fit(CAPTIONS, seed=0)


def test_unknown_words_have_the_vector_of_the_file_or_the_mean(keyed: KeyedVectors, tmp_path: Path) -> None:
    for unknown, expected in (("vector", keyed["UNK"]), ("mean", (keyed["dog"] + keyed["café"]) / 2)):
        vectorizer, metrics = fit(keyed, tmp_path, unknown=unknown)
        assert metrics["words"] == 2
        assert metrics["words_without_vector"] == 3
        assert not vectorizer.word_vectors.vectors[0].any()
        np.testing.assert_allclose(vectorizer.word_vectors.vectors[1], expected, rtol=1e-5)
        encoded = vectorizer.transform(["a dog"])
        np.testing.assert_allclose(vectorizer.word_vectors.vectors[encoded.values[0][1]], keyed["dog"], rtol=1e-6)
        assert encoded.counts["unknown_tokens"] == 1


def test_buckets_distinguish_unknown_words(keyed: KeyedVectors, tmp_path: Path) -> None:
    vectorizer, _ = fit(keyed, tmp_path, unknown="bucket", buckets=50)
    encoded = vectorizer.transform(["zebra lion"])
    lion, zebra = vectorizer.word_vectors.vectors[encoded.values[0]]
    assert encoded.counts["unknown_tokens"] == 2
    assert not np.array_equal(lion, zebra)


def test_missing_vectors_are_named(keyed: KeyedVectors, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs path: a file of word vectors"):
        PretrainedWordVectors().fit(CAPTIONS, seed=0)
    with pytest.raises(FileNotFoundError, match="no such file"):
        PretrainedWordVectors(path=tmp_path / "nothing.bin").fit(CAPTIONS, seed=0)
    keyed = KeyedVectors(2)
    keyed.add_vectors(["dog", "perro"], np.ones((2, 2), np.float32))
    with pytest.raises(ValueError, match="no vector for unknown words"):
        fit(keyed, tmp_path, unknown="vector")
    with pytest.raises(ValueError, match="none of the 1 words of the captions"):
        PretrainedWordVectors(path=write(keyed, tmp_path)).fit(["zebra"], seed=0)
