"""Fisher vectors of captions against their definition, and without torch."""

from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

from bifocal.onnx.text.fisher import FisherVectors, streaming_pca
from bifocal.onnx.text.mixture import Mixture
from bifocal.onnx.text.sentences import open_readers
from bifocal.text.vectorizers.base import load_vectorizer, save_vectorizer


def test_fisher_vector_is_the_normalized_mean_of_its_words() -> None:
    captions = ["a dog runs", "a cat runs home", "the dog eats", "the cat eats food"] * 3
    vectorizer = FisherVectors(dim=4, centers=2, components=5, epochs=1, iterations=2)
    vectorizer.fit(captions, seed=0)
    ids = vectorizer.word_vectors.vocabulary.encode(["dog", "food", "dog"])
    words = (
        vectorizer.word_vectors.vectors[ids] - vectorizer.state["word_mean"]
    ) @ vectorizer.state["unmixing"]
    mixture = Mixture(
        *(vectorizer.state[name] for name in ("weights", "centers", "scales", "gaussian"))
    )
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
    (reader,) = open_readers(tmp_path)
    values, lengths = reader.batch(sentences)
    expected = load_vectorizer(tmp_path).vectorize(sentences)
    np.testing.assert_array_equal(values, expected.values.numpy())
    np.testing.assert_array_equal(lengths, expected.lengths.numpy())
    assert np.abs(values).max() > 0.1


def test_streaming_pca_equals_scikit_learn() -> None:
    generator = np.random.default_rng(6)
    spectrum = np.array([9, 7, 5, 3, *[0.01] * 16])
    x = (generator.normal(size=(300, 20)) * spectrum + generator.normal(size=20)).astype(np.float32)
    mean, components = streaming_pca(
        lambda: np.array_split(x, 7), components=4, seed=0, oversample=5
    )
    peer = PCA(4).fit(x)
    np.testing.assert_allclose(mean, peer.mean_, atol=1e-4)
    np.testing.assert_allclose(np.abs(components.T @ peer.components_.T), np.eye(4), atol=1e-3)
