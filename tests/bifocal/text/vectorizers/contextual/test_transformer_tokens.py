"""States of a transformer for every subword, without the special tokens."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from bifocal.text.transformer.tiny import write_tiny_transformer
from bifocal.text.vectorizers import TransformerTokens

SENTENCES = ["a dog runs", "dog", ""]


@pytest.fixture(scope="module")
def folder() -> Path:
    return write_tiny_transformer(SENTENCES, dim=8)


@pytest.mark.parametrize("layers", [(-1,), (0, 1, 2), (2, -3)])
def test_states_are_those_of_the_layers(folder: Path, layers: tuple[int, ...]) -> None:
    vectorizer = TransformerTokens(layers=layers, batch_size=2, path=folder)
    vectorizer.fit([], seed=0)
    encoded = vectorizer.transform(SENTENCES)
    network = AutoModel.from_pretrained(folder, dtype=torch.float64)
    # The special tokens are 2 and 3; the words follow in alphabetical order.
    for ids, row in zip([[4, 5, 6], [5], []], encoded.values, strict=True):
        with torch.inference_mode():
            states = network(torch.tensor([[2, *ids, 3]]), output_hidden_states=True).hidden_states
        expected = np.stack([states[layer][0, 1 : 1 + max(len(ids), 1)].numpy() for layer in layers])
        assert row.dtype == np.float16
        np.testing.assert_allclose(row, expected.ravel(), atol=2e-3)
    assert encoded.counts["tokens"] == 4


def test_missing_layer_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match="the transformer has no layer 3: give numbers from -3 to 2"):
        TransformerTokens(layers=(3,), path=folder).fit([], seed=0)


def test_files_of_a_killed_save_are_replaced(folder: Path, tmp_path: Path) -> None:
    vectorizer = TransformerTokens(path=folder)
    vectorizer.fit([], seed=0)
    for _ in range(2):
        vectorizer.save(tmp_path)
    assert list(tmp_path.rglob("*.safetensors"))
