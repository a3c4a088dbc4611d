"""Models with random weights over a text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bifocal import registry
from bifocal.models import build_model, save_model
from bifocal.models.base import Model
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import PACKAGE, write_text

CAPTIONS = ["a dog runs on the grass", "two red birds", "the dog", "a bird on a street", "grass"]


def write_text_model(folder: Path, ref: Mapping[str, Any], encoder: Any) -> Model:
    """Write a model with random weights and its text to ``embedding`` and ``text``, and return the
    model."""
    vectorizer = registry.build(PACKAGE, ref)
    vectorizer.fit(CAPTIONS, seed=0)
    (folder / "text").mkdir()
    write_text(folder / "text", vectorizer, range(len(CAPTIONS)), CAPTIONS)
    store = TextStore(folder / "text")
    model = build_model(
        {
            "name": "TwoBranchModel",
            "dim": 6,
            "image_encoder": "LinearEncoder",
            "text_encoder": encoder,
        },
        feature_dim=3,
        text_dim=store.dim,
        text_format=store.format.name,
        network=store.network,
    ).eval()
    torch.manual_seed(0)
    for tensor in (*model.text_encoder.parameters(), *model.text_encoder.buffers()):
        if tensor.is_floating_point():
            torch.nn.init.uniform_(tensor, 0.1, 0.9)  # also the statistics of batch normalization
    save_model(folder / "embedding", model)
    return model
