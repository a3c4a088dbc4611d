"""The model of every recipe, in its full size, gets a loss and gradients from a few made-up images and captions."""

import functools
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.batch import Batch
from bifocal.features import RegionBatch
from bifocal.models import build_model
from bifocal.registry import build, get
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
CHANNELS = {"BottomUpTSV": 2048, "PrecomputedFeatures": 2048, "TenCrop": 4096, "MultiLevel": 512, "Pixels": 3}
"""D of the features; 128 of the others."""
IMAGES, WORDS, TERMS = 3, 4, 40


def regions(channels: int) -> RegionBatch:
    """Features of so many channels; a few pixels if it is 3."""
    boxes = torch.zeros(IMAGES, 8, 4)
    if channels == CHANNELS["Pixels"]:
        return RegionBatch(torch.full((IMAGES, 3, 64, 64), 99.0), torch.ones(IMAGES, 64, 64, dtype=torch.bool), boxes)
    features = torch.rand(IMAGES, 8, channels)
    return RegionBatch(features, torch.ones(IMAGES, 8, dtype=torch.bool), boxes)


def text(vectorizer: dict[str, Any]) -> tuple[TextBatch, dict[str, Any]]:
    """One caption of each image as the recipe's vectorizer would give it, and what the model is told of it."""
    lengths = torch.full((IMAGES,), WORDS)
    if vectorizer["name"] == "Word2Vec":
        values = torch.randint(1, TERMS, (IMAGES, WORDS))
        sizes = {"text_dim": vectorizer["dim"], "text_format": "tokens", "vocabulary_size": TERMS}
        return TextBatch(values, lengths), sizes
    if vectorizer["name"] == "ElmoLayers":
        dim = 2 * vectorizer.get("projection_dim", ElmoLayers.projection_dim)
        values = torch.rand(IMAGES, 3, WORDS, dim)
        return TextBatch(values, lengths), {"text_dim": dim, "text_format": "contextual"}
    default = MeanWordVectors.dim if vectorizer["name"] == "MeanWordVectors" else TERMS
    dim = vectorizer.get("components") or vectorizer.get("dim") or default
    return TextBatch(torch.rand(IMAGES, dim), lengths), {"text_dim": dim, "text_format": "vectors"}


@functools.cache
def one_step(section: str, channels: int, vectorizer: str) -> None:
    """What precedes the optimiser's step; recipes often share their sections."""
    captions, told = text(json.loads(vectorizer))
    seen = regions(channels)
    values = load(ROOT / "params.yaml") | {"train_embedding": json.loads(section)}
    params = validate(values, configurable_components().values())["train_embedding"]
    assert isinstance(params, TrainEmbeddingParams)
    parts = {name: params.model_dump()[name] for name in ("model", "image_encoder", "text_encoder")}
    if parts["image_encoder"].get("crop"):
        parts["image_encoder"]["crop"] = 32
    # Drawing a hundred million random weights would take most of the time.
    with torch.device("meta"):
        encoders = {part: parts[part] for part in ("image_encoder", "text_encoder")}
        model: Any = build_model(parts["model"] | encoders | {"dim": params.dim}, feature_dim=channels, **told)
    model.to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.fill_(1e-3 if tensor.is_floating_point() else 0)
    check_module_names(model, params.train_from)
    apply_freezing(model, params.train_from, params.epochs)
    matches = torch.eye(IMAGES, dtype=torch.bool)
    if params.mining is not None:
        matches = torch.tensor([[0, 1, -1], [0, 0, 0], [0, 0, 0]])
    takes_sorter = "sorter" in inspect.signature(get("bifocal.losses", params.loss.name)).parameters
    sorter = {"sorter": LSTMSorter(IMAGES, hidden=2, layers=1)} if takes_sorter else {}
    loss = build("bifocal.losses", params.loss.name, **params.loss.arguments, **sorter)
    build_optimizer({"name": params.optimizer.name, **params.optimizer.arguments}, model.parameters(), 0.1)
    value = loss(model(Batch(["a", "b", "c"], seen, captions, matches)), matches)
    value.backward()
    assert torch.isfinite(value)
    assert any(parameter.grad is not None for parameter in model.image_encoder.parameters())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_model_of_a_recipe_trains(recipe: Path) -> None:
    values = load(ROOT / "params.yaml", [recipe])
    kind = values["extract_features"]["extractor"]["name"]
    section, vectorizer = values["train_embedding"], values["vectorize_captions"]["vectorizer"]
    one_step(json.dumps(section), CHANNELS.get(kind, 128), json.dumps(vectorizer))
