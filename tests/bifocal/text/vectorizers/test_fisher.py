"""Fisher vectors of captions against their definition."""

import numpy as np

from bifocal.text.vectorizers import FisherVectors
from bifocal.text.vectorizers.gaussian_mixture import Mixture


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
