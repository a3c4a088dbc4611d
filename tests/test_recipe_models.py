"""The full-size model of every recipe computes the loss of every phase, and its gradients, on random inputs."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.batch import Batch
from bifocal.features import RegionBatch
from bifocal.models import build_model
from bifocal.registry import build
from bifocal.sorters import LSTMSorter
from bifocal.text import TextBatch
from bifocal.text.vectorizers import ElmoLayers, MeanWordVectors
from bifocal.training.freezing import apply_freezing, check_module_names
from bifocal.training.optimizers import build_optimizer
from components.catalog import configurable_components
from components.train_embedding.spec import TrainEmbeddingParams
from runtime.parameters import load, validate

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))
CHANNELS = {"BottomUpTSV": 2048, "PrecomputedFeatures": 2048, "TenCrop": 4096, "MultiLevel": 512}
CHANNELS |= {"ImageFiles": 3, "Pixels": 3}
"""Channels of the features of an extractor; 128 for the others."""
IMAGES, WORDS, TERMS = 3, 4, 40
SKIP_THOUGHTS = 620
"""Dimension of the word vectors of a file."""


def regions(channels: int) -> RegionBatch:
    """Return random features, or a few pixels if there are 3 channels."""
    boxes = torch.zeros(IMAGES, 8, 4)
    if channels == CHANNELS["Pixels"]:
        return RegionBatch(torch.full((IMAGES, 3, 64, 64), 99.0), torch.ones(IMAGES, 64, 64, dtype=torch.bool), boxes)
    features = torch.rand(IMAGES, 8, channels)
    return RegionBatch(features, torch.ones(IMAGES, 8, dtype=torch.bool), boxes)


def text(vectorizer: dict[str, Any]) -> tuple[TextBatch, dict[str, Any]]:
    """Return one caption per image in the format of the vectorizer, and the arguments of the model for it."""
    lengths = torch.full((IMAGES,), WORDS)
    if vectorizer["name"] in ("PretrainedWordVectors", "Word2Vec"):
        values = torch.randint(1, TERMS, (IMAGES, WORDS))
        dim = vectorizer.get("dim", SKIP_THOUGHTS)
        sizes = {"text_dim": dim, "text_format": "tokens", "vocabulary_size": TERMS}
        return TextBatch(values, lengths), sizes
    if vectorizer["name"] == "ElmoLayers":
        dim = 2 * vectorizer.get("projection_dim", ElmoLayers.projection_dim)
        values = torch.rand(IMAGES, 3, WORDS, dim)
        return TextBatch(values, lengths), {"text_dim": dim, "text_format": "contextual"}
    default = MeanWordVectors.dim if vectorizer["name"] == "MeanWordVectors" else TERMS
    dim = vectorizer.get("components") or vectorizer.get("dim") or default
    return TextBatch(torch.rand(IMAGES, dim), lengths), {"text_dim": dim, "text_format": "vectors"}


@functools.cache
def train_step(section: str, channels: int, vectorizer: str) -> None:
    """Compute the gradients of every phase; cached, because recipes share their sections."""
    captions, sizes = text(json.loads(vectorizer))
    values = load(ROOT / "params.yaml") | {"train_embedding": json.loads(section)}
    params = validate(values, configurable_components().values())["train_embedding"]
    assert isinstance(params, TrainEmbeddingParams)
    ref = {"name": params.model.name, **params.model.arguments}
    for side, size in {"crop": 32, "image_size": 64}.items():
        if isinstance(ref["image_encoder"], dict) and ref["image_encoder"].get(side):
            ref["image_encoder"][side] = size
    # Drawing a hundred million random weights would take most of the time.
    with torch.device("meta"):
        model: Any = build_model(ref, feature_dim=channels, **sizes)
    model.to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.fill_(1e-3 if tensor.is_floating_point() else 0)
    build_optimizer(params.optimizer, model.parameters(), 0.1)
    inputs = regions(channels)
    for phase in params.phases:
        build("bifocal.training.schedules", phase.schedule)
        check_module_names(model, phase.frozen_until)
        apply_freezing(model, phase.frozen_until, phase.epochs)
        matches = torch.eye(IMAGES, dtype=torch.bool)
        if phase.batches.name == "MinedTriplets":
            matches = torch.tensor([[0, 1, -1], [0, 0, 0], [0, 0, 0]])
        loss = build("bifocal.losses", phase.loss, sorter=LSTMSorter(IMAGES, hidden=2, layers=1))
        model.zero_grad()
        value = loss(model(Batch(["a", "b", "c"], inputs, captions, matches)), matches)
        value.backward()
        assert torch.isfinite(value)
        assert any(parameter.grad is not None for parameter in model.image_encoder.parameters())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_model_of_a_recipe_trains_in_every_phase(recipe: Path) -> None:
    values = load(ROOT / "params.yaml", [recipe])
    extractor = values["extract_features"]["extractor"]["name"]
    section, vectorizer = values["train_embedding"], values["vectorize_captions"]["vectorizer"]
    if vectorizer["name"] == "FromText":
        other = ROOT / "recipes" / Path(vectorizer["path"]).relative_to("runs").parents[1].with_suffix(".yaml")
        vectorizer = load(ROOT / "params.yaml", [other])["vectorize_captions"]["vectorizer"]
    train_step(json.dumps(section), CHANNELS.get(extractor, 128), json.dumps(vectorizer))
