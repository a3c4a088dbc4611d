"""Word2Vec: counts, unknown words, similarity of trained vectors, training on a user file."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bifocal.onnx.text.captions import MAX_TOKENS
from bifocal.onnx.text.sentences import open_readers
from bifocal.text import TextStore
from bifocal.text.vectorizers import MeanWordVectors, Word2Vec
from bifocal.text.vectorizers.base import load_vectorizer, save_vectorizer, write_text

UNUSUAL = ["", "...", "word " * 10_000, "犬が走る", "🐕", "a dog on the street"]


def test_empty_and_truncated_captions_are_counted(tmp_path: Path) -> None:
    vectorizer = Word2Vec(dim=8, min_count=2, epochs=2)
    vectorizer.fit(["a dog runs on the street"] * 5, seed=0)
    metrics = write_text(tmp_path, vectorizer, list(range(len(UNUSUAL))), UNUSUAL)
    assert metrics["captions"] == len(UNUSUAL)
    assert metrics["empty_captions"] == 2
    assert metrics["truncated_captions"] == 1
    lengths = TextStore(tmp_path).gather(range(len(UNUSUAL))).lengths
    assert (lengths.min(), lengths.max()) == (1, MAX_TOKENS)


def test_unknown_words_are_counted(tmp_path: Path) -> None:
    vectorizer = Word2Vec(dim=8, min_count=3, epochs=1)
    vectorizer.fit(["a dog"] * 3 + ["one cat"], seed=0)
    metrics = write_text(tmp_path, vectorizer, [5, 6], ["a cat", "the dog"])
    assert metrics["unknown_share"] == 0.5
    store = TextStore(tmp_path)
    unknown = store.gather([0]).values[0, 1]
    assert unknown == 1
    torch.testing.assert_close(store.word_vectors[1], store.word_vectors[2:].mean(dim=0))
    assert not store.word_vectors[0].any()


def test_words_with_similar_contexts_are_close() -> None:
    sentences = [f"the {animal} eats food" for animal in ("dog", "cat")] * 60
    sentences += [f"we drive a {car} there" for car in ("bus", "truck")] * 60
    vectorizer = Word2Vec(dim=16, epochs=20, subsample=0)
    vectorizer.fit(sentences, seed=0)
    words = vectorizer.word_vectors
    dog, cat, bus = (
        torch.from_numpy(words.vectors[i]) for i in words.vocabulary.encode(["dog", "cat", "bus"])
    )
    assert torch.cosine_similarity(dog, cat, dim=0) > torch.cosine_similarity(dog, bus, dim=0)


def test_text_without_frequent_words_is_rejected() -> None:
    with pytest.raises(ValueError, match="no word occurs 5 times in 1 sentences"):
        Word2Vec().fit(["a dog"], seed=0)


def test_path_replaces_the_training_captions(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("ein Hund läuft\n" * 5, encoding="utf-8")
    vectorizer = Word2Vec(dim=4, epochs=1, path=path)
    vectorizer.fit(["a dog"], seed=0)
    assert set(vectorizer.word_vectors.vocabulary.words[2:]) == {"ein", "hund", "läuft"}
    path.write_bytes(b"ein Hund\nl\xe4uft\n")
    with pytest.raises(ValueError, match="line 2: not UTF-8"):
        vectorizer.fit(["a dog"], seed=0)


CAPTIONS = ["a dog runs on the grass", "two red birds", "the dog"]


def test_served_means_equal_the_vectorizer(tmp_path: Path) -> None:
    vectorizer = MeanWordVectors(dim=5, epochs=1)
    vectorizer.fit(CAPTIONS, seed=0)
    save_vectorizer(tmp_path, vectorizer)
    sentences = [*CAPTIONS, "", "A DOG, an unknownword!", "bird " * 300]
    (reader,) = open_readers(tmp_path)
    assert isinstance(reader, MeanWordVectors)
    values, lengths = reader.batch(sentences)
    expected = load_vectorizer(tmp_path).vectorize(sentences)
    np.testing.assert_array_equal(values, expected.values.numpy())
    np.testing.assert_array_equal(lengths, expected.lengths.numpy())
    assert values.dtype == np.float32
