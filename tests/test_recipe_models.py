"""The model of every recipe, in full width, gets gradients in both branches from the loss of every
phase.

Weights and inputs are random; vocabularies are short, and images small.
"""

import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bifocal.features import RegionBatch
from bifocal.features.base import FeatureReader
from bifocal.models import build_model
from bifocal.models.batch import Batch
from bifocal.registry import build, get
from bifocal.sorters import PositionwiseLSTMSorter
from bifocal.text import TextBatch
from bifocal.text.vectorizers import ElmoLayers, MeanWordVectors
from bifocal.training.optimizers import apply_freezing, build_optimizer, check_module_names
from components.catalog import configurable_components
from components.train_embedding.spec import TrainEmbeddingParams
from runtime.parameters import load, validate

ROOT = Path(__file__).parents[1]
RECIPES = [
    path
    for path in sorted((ROOT / "recipes").rglob("*.yaml"))
    if load(ROOT / "params.yaml", [path])["pipeline"] != "ranking_head"
]
PIXELS, PUBLISHED = 3, 2048
"""Channels of extractors of pixels, and of published features of regions."""
IMAGES, WORDS, TERMS = 3, 4, 40
SKIP_THOUGHTS = 620
"""Dimension of the word vectors of a file."""


@functools.cache
def channels_of(extractor: str) -> int:
    """Return the number of channels of an extractor's features, from its network's shapes."""
    ref = json.loads(extractor)
    part = get("bifocal.features.extractors", ref["name"])
    if issubclass(part, FeatureReader):
        return PUBLISHED
    if ref["name"] in ("ImageFiles", "Pixels"):
        return PIXELS
    with torch.device("meta"):
        built: Any = build("bifocal.features.extractors", ref)
        return int(built.dim)


def fill(model: nn.Module) -> None:
    """Give weights random values of the scale of He's initialization, from one short draw: drawing
    all takes long."""
    draw = torch.rand(1_000_003, generator=torch.Generator().manual_seed(0)) - 0.5
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        values = tensor.data.view(-1)
        if not tensor.is_floating_point():
            values.zero_()
        elif tensor.ndim < 2 or "running" in name or name.endswith((".mean", ".std")):
            # Scales and statistics; biases of 0 keep LSTMs and affine layers alive too.
            values.fill_(0.0 if name.endswith(("bias", "running_mean")) else 1.0)
        else:
            for start in range(0, len(values), len(draw)):
                values[start : start + len(draw)] = draw[: len(values) - start]
            values.mul_(math.sqrt(24 / tensor[0].numel()))


def gradient_norm(module: nn.Module | None) -> float:
    """Return the l2 norm of all gradients of a module."""
    gradients = (
        [p.grad for p in module.parameters() if p.grad is not None] if module is not None else []
    )
    return math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))


def regions(channels: int, count: int = 8) -> RegionBatch:
    """Return random features, or a few pixels if there are 3 channels."""
    boxes = torch.zeros(IMAGES, count, 4)
    if channels == PIXELS:
        return RegionBatch(
            255 * torch.rand(IMAGES, 3, 64, 64), torch.ones(IMAGES, 64, 64, dtype=torch.bool), boxes
        )
    features = torch.rand(IMAGES, count, channels)
    return RegionBatch(features, torch.ones(IMAGES, count, dtype=torch.bool), boxes)


def text(vectorizer: dict[str, Any]) -> tuple[TextBatch, dict[str, Any]]:
    """Return one caption per image in the format of the vectorizer, and the arguments of the model
    for it."""
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
    with torch.device("meta"):
        model: Any = build_model(ref, feature_dim=channels, **sizes)
    model.to_empty(device="cpu")
    fill(model)
    build_optimizer(params.optimizer, model.parameters(), 0.1)
    whole = model.image_encoder.input_shape[1]  # an encoder of whole maps needs all their cells
    inputs = (
        regions(channels, whole)
        if isinstance(whole, int) and channels != PIXELS
        else regions(channels)
    )
    for phase in params.phases:
        build("bifocal.training.schedules", phase.schedule)
        check_module_names(model, phase.frozen_until)
        apply_freezing(model, phase.frozen_until, phase.epochs)
        matches = torch.eye(IMAGES, dtype=torch.bool)
        if phase.batches.name in ("MinedTriplets", "OrderedTriplets"):
            matches = torch.tensor([[0, 1, -1], [0, 0, 0], [0, 0, 0]])
        loss = build(
            "bifocal.losses", phase.loss, sorter=PositionwiseLSTMSorter(IMAGES, hidden=2, layers=1)
        )
        model.zero_grad()
        output = model(Batch(["a", "b", "c"], inputs, captions, matches))
        value = loss(output, matches)
        if value == 0:  # chance kept all margins: exchanged captions break them
            value = loss(output, matches[:, [0, 2, 1]])
        value.backward()
        assert torch.isfinite(value)
        assert gradient_norm(model.image_encoder) > 0
        arguments = phase.loss.arguments
        if not (
            arguments.get("image_to_text_weight") == arguments.get("text_to_image_weight") == 0
        ):
            assert gradient_norm(model.text_encoder) > 0


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_model_of_a_recipe_trains_in_every_phase(recipe: Path) -> None:
    values = load(ROOT / "params.yaml", [recipe])
    channels = channels_of(json.dumps(values["extract_features"]["extractor"]))
    section, vectorizer = values["train_embedding"], values["vectorize_captions"]["vectorizer"]
    if vectorizer["name"] == "FromText":
        other = (
            ROOT
            / "recipes"
            / Path(vectorizer["path"]).relative_to("runs").parents[1].with_suffix(".yaml")
        )
        vectorizer = load(ROOT / "params.yaml", [other])["vectorize_captions"]["vectorizer"]
    train_step(json.dumps(section), channels, json.dumps(vectorizer))
