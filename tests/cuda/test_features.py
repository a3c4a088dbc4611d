"""Features and contextual text of networks on the GPU against the CPU; images are extracted in
float16."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.datasets import Dataset
from bifocal.features.extraction import NetworkFeatures
from bifocal.registry import build
from bifocal.text import Elmo
from bifocal.text.elmo import ElmoOptions
from bifocal.text.vectorizers import ElmoLayers, SentenceVectors, TransformerTokens
from bifocal.training.pretraining.elmo import pretrain_elmo
from tests.bifocal.tiny_transformer import write_tiny_transformer
from tests.cuda.device import DEVICE, needs_device, relative_error

pytestmark = needs_device
SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}
LAYERS = ("layer3", "layer4")
SENTENCES = ["a dog runs on the grass", "two red birds", "", "the dog"]
EXTRACTORS: dict[str, dict[str, Any]] = {
    "Grid": {"coordinates": True, "mirror": True},
    "Hypercolumns": {"layers": LAYERS},
    "MultiLevel": {"layers": ("layer3",), "cells": 3},
    "PooledLayers": {"layers": LAYERS, "classes": False},
    "TenCrop": {"crop": 64},
}


@pytest.mark.parametrize("name", EXTRACTORS)
def test_features_equal_the_cpu(squares: Dataset, name: str) -> None:
    image_ids = [str(image) for image in squares.images["image_id"][:20]]

    def extract(device: torch.device) -> list[Any]:
        torch.manual_seed(0)
        reference = {
            "name": name,
            "backbone": "resnet10t",
            "size": 96,
            "model_arguments": SMALL,
            **EXTRACTORS[name],
        }
        extractor = build("bifocal.features.extractors", reference)
        extractor.backbone.network.to(device)
        return [
            regions
            for _, regions in NetworkFeatures(extractor, squares, batch_size=7).read(image_ids)
        ]

    actual, expected = extract(DEVICE), extract(torch.device("cpu"))
    features, true = ([regions.features.cpu() for regions in found] for found in (actual, expected))
    assert relative_error(features, true) < 1e-2
    for found, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(found.boxes.cpu(), other.boxes, rtol=0, atol=1e-6)


def test_elmo_layers_equal_the_cpu() -> None:
    torch.manual_seed(0)
    elmo = Elmo(ElmoOptions(filters=((1, 8), (2, 16)), lstm_dim=64, projection_dim=16)).eval()
    sentences = [sentence.split() for sentence in SENTENCES]
    expected = [torch.from_numpy(layers) for layers in elmo.layers(sentences)]
    actual = [torch.from_numpy(layers) for layers in elmo.to(DEVICE).layers(sentences)]
    assert relative_error(actual, expected) < 1e-4


@pytest.mark.parametrize("kind", [ElmoLayers, SentenceVectors, TransformerTokens])
def test_vectorizer_equals_the_cpu(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vectorizer chooses the device itself; one that is loaded is on the CPU or on the GPU."""
    if kind is ElmoLayers:
        vectorizer = kind(
            projection_dim=4, lstm_dim=6, filters=((1, 3), (2, 4)), epochs=1, train=pretrain_elmo
        )
    else:
        vectorizer = kind(path=write_tiny_transformer(SENTENCES, dim=8))
    assert all(value == value for value in vectorizer.fit(SENTENCES, seed=0).values())
    actual = vectorizer.transform(SENTENCES).values
    vectorizer.save(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    vectorizer.load(tmp_path)
    expected = vectorizer.transform(SENTENCES).values
    assert (
        relative_error(*([torch.from_numpy(row) for row in rows] for rows in (actual, expected)))
        < 1e-2
    )
