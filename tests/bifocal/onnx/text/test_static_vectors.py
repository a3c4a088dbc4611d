"""Static vectors against loops over their definition, for each of their sources."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers import AutoModel

from bifocal.registry import build
from bifocal.text.transformer.tiny import write_tiny_transformer
from bifocal.text.vectorizers import StaticVectors
from bifocal.text.vectorizers.base import PACKAGE

CAPTIONS = ["a dog runs", "a bird", "a dog and a bird"]


@pytest.fixture(scope="module")
def folder() -> Path:
    return write_tiny_transformer(CAPTIONS, dim=8)


def vocabulary(folder: Path) -> dict[str, int]:
    ids: dict[str, int] = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    return ids


def vectors(path: Path, sentences: list[str], **arguments: object) -> np.ndarray:
    vectorizer: StaticVectors = build(PACKAGE, {"name": "StaticVectors", "path": path, **arguments})
    vectorizer.fit(CAPTIONS, seed=0)
    return np.stack(vectorizer.transform(sentences).values)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def test_distilled_vectors_keep_the_inner_products_of_weighted_centered_states(
    folder: Path,
) -> None:
    """With all components, principal components are a rotation, which no inner product shows."""
    network, ids = AutoModel.from_pretrained(folder, dtype=torch.float64), vocabulary(folder)
    with torch.inference_mode():
        states = [
            network(torch.tensor([[2, token, 3]])).last_hidden_state[0].mean(dim=0).numpy()
            for token in range(9)
        ]
    assert len(ids) == 9
    total = sum(1 / (rank + 1) for rank in range(1, 10))
    weights = [1e-4 / (1e-4 + 1 / (rank + 1) / total) for rank in range(1, 10)]
    tokens = [
        weight * (state - np.mean(states, axis=0))
        for weight, state in zip(weights, states, strict=True)
    ]
    expected = [unit(sum(tokens[ids[word]] for word in text.split())) for text in CAPTIONS]
    found = vectors(folder, CAPTIONS, dim=8)
    np.testing.assert_allclose(
        found @ found.T, np.array(expected) @ np.array(expected).T, atol=1e-5
    )


def test_fewer_components_keep_the_largest_variances(folder: Path) -> None:
    vectorizer = StaticVectors(path=folder, dim=3)
    assert vectorizer.fit([], seed=0) == {"words": 9}
    everything = StaticVectors(path=folder, dim=8)
    everything.fit([], seed=0)
    np.testing.assert_allclose(vectorizer.vectors, everything.vectors[:, :3], atol=1e-6)
    total = [1 / (rank + 1) for rank in range(1, 10)]
    weights = np.array([1e-4 / (1e-4 + p / sum(total)) for p in total])
    variances = (everything.vectors / weights[:, None]).var(axis=0)
    assert (np.diff(variances) <= 0).all()


@pytest.mark.parametrize("quantized", [False, True])
def test_published_vectors_are_read_with_their_weights(
    folder: Path, tmp_path: Path, quantized: bool
) -> None:
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    generator, ids = np.random.default_rng(0), vocabulary(folder)
    tensors = {"embeddings": generator.standard_normal((9, 5)).astype(np.float16)}
    rows, weights = np.arange(9), np.ones(9)
    if quantized:
        rows, weights = np.arange(9) // 2, generator.random(9)
        tensors |= {"mapping": rows, "weights": weights}
    save_file(tensors, tmp_path / "model.safetensors")
    table = [weights[i] * tensors["embeddings"][rows[i]].astype(np.float64) for i in range(9)]
    expected = [unit(sum(table[ids[word]] for word in text.split())) for text in CAPTIONS]
    np.testing.assert_allclose(vectors(tmp_path, CAPTIONS), expected, atol=1e-6)


@pytest.mark.parametrize("weights", ["source", "idf"])
def test_word_vectors_are_summed_with_their_weights(tmp_path: Path, weights: str) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("a 1 0\ndog 0 1\nbird 2 1\nzebra 5 5\n")
    table = {"a": (1, 0), "dog": (0, 1), "bird": (2, 1)}
    count = Counter(word for caption in CAPTIONS for word in set(caption.split()))
    expected = []
    for sentence in CAPTIONS:
        total = np.zeros(2)
        for word in sentence.split():
            idf = math.log((1 + len(CAPTIONS)) / (1 + count[word])) + 1 if weights == "idf" else 1.0
            total += idf * np.array(table.get(word, (0, 0)))
        expected.append(unit(total))
    np.testing.assert_allclose(vectors(path, CAPTIONS, weights=weights), expected, atol=1e-6)
    assert not vectors(path, ["", "unknown"], weights=weights).any()


def test_file_of_another_language_is_named(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("hund 1 0\n")
    with pytest.raises(
        ValueError, match="has none of the 5 words of the captions: check its language"
    ):
        StaticVectors(path=path).fit(CAPTIONS, seed=0)
