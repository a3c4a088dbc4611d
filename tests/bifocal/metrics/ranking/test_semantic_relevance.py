"""Ground-truth relevance of semantic retrieval: tf-idf by loops."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bifocal.datasets import Dataset
from bifocal.metrics.ranking.semantic_relevance import image_vectors, relevance
from bifocal.text.vectorizers import TFIDF

TRAINING = ["red star", "red ring", "blue star", "green moon moon"]
CAPTIONS = ["red star", "blue star star", "green moon", "red moon", "words that nobody knows"]
IMAGES = ["a", "a", "b", "c", "d"]


@pytest.fixture
def split() -> Dataset:
    captions = pd.DataFrame({"caption_id": range(5), "image_id": IMAGES, "text": CAPTIONS})
    return Dataset(
        pd.DataFrame({"image_id": ["c", "a", "b", "d"]}), captions, pd.DataFrame(), Path()
    )


def slow(text: str) -> dict[str, float]:
    """tf times ln((1 + n) / (1 + df)) + 1 over the training captions, of unit norm."""
    weights = {}
    for word in text.split():
        containing = sum(word in caption.split() for caption in TRAINING)
        if containing:
            weights[word] = text.split().count(word) * (
                math.log((1 + len(TRAINING)) / (1 + containing)) + 1
            )
    norm = math.sqrt(sum(value**2 for value in weights.values())) or 1.0
    return {word: value / norm for word, value in weights.items()}


def dot(first: dict[str, float], second: dict[str, float]) -> float:
    return sum(value * second.get(word, 0.0) for word, value in first.items())


def test_relevance_equals_product_of_tf_idf_vectors_of_images(split: Dataset) -> None:
    vectorizer = TFIDF()
    vectorizer.fit(TRAINING, seed=0)
    values = relevance(image_vectors(vectorizer, split), torch.tensor([1, 3]))
    bags = {}
    for image in split.images["image_id"]:
        total: dict[str, float] = {}
        for text, described in zip(CAPTIONS, IMAGES, strict=True):
            if described == image:
                total = {
                    word: total.get(word, 0) + slow(text).get(word, 0)
                    for word in {*total, *slow(text)}
                }
        norm = math.sqrt(dot(total, total)) or 1.0
        bags[image] = {word: value / norm for word, value in total.items()}
    expected = [
        [dot(bags[query], bags[image]) for image in ("c", "a", "b", "d")] for query in ("a", "d")
    ]
    np.testing.assert_allclose(values.numpy(), expected, atol=1e-6)
    assert values[0, 1] == pytest.approx(1.0)
    assert values[1].tolist() == [0.0] * 4
