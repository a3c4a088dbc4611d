"""Means of word vectors of an exported model equal the vectorizer's."""

from pathlib import Path

import numpy as np

from bifocal.onnx.text.sentences import open_readers
from bifocal.text.vectorizers import MeanWordVectors
from bifocal.text.vectorizers.base import load_vectorizer, save_vectorizer

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
