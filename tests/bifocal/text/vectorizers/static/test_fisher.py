"""Fisher vectors of captions against their definition, and without torch."""

from pathlib import Path

import numpy as np

from bifocal.onnx.text.fisher import FisherReader, Mixture
from bifocal.text.vectorizers import FisherVectors
from bifocal.text.vectorizers.base import load_vectorizer, save_vectorizer


def test_fisher_vector_is_the_normalized_mean_of_its_words() -> None:
    captions = ["a dog runs", "a cat runs home", "the dog eats", "the cat eats food"] * 3
    vectorizer = FisherVectors(dim=4, centers=2, components=5, epochs=1, iterations=2)
    vectorizer.fit(captions, seed=0)
    ids = vectorizer.word_vectors.vocabulary.encode(["dog", "food", "dog"])
    words = (vectorizer.word_vectors.vectors[ids] - vectorizer.state["word_mean"]) @ vectorizer.state["unmixing"]
    mixture = Mixture(*(vectorizer.state[name] for name in ("weights", "centers", "scales", "gaussian")))
    mean = mixture.fisher_terms(words.astype(float)).mean(axis=0)
    expected = np.sign(mean) * np.sqrt(np.abs(mean))
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(vectorizer.fisher([np.array(ids)])[0], expected, atol=1e-5)


def test_served_vectors_are_those_of_the_text(tmp_path: Path) -> None:
    captions = ["a dog runs", "a cat runs home", "the dog eats", "the cat eats food"] * 3
    vectorizer = FisherVectors(dim=4, centers=2, components=5, epochs=1, iterations=2)
    vectorizer.fit(captions, seed=0)
    save_vectorizer(tmp_path, vectorizer)
    sentences = ["the DOG runs home", "cat", "unknown words", "", "food " * 200]
    values, lengths = FisherReader.load(tmp_path).batch(sentences)
    expected = load_vectorizer(tmp_path).vectorize(sentences)
    np.testing.assert_allclose(values, expected.values.numpy(), atol=1e-4)
    np.testing.assert_array_equal(lengths, expected.lengths.numpy())
    assert np.abs(values).max() > 0.1
