"""Encoders and models on the GPU against the CPU: scores and gradients of a training step."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from bifocal.export.encoders import example_inputs
from bifocal.features import RegionBatch
from bifocal.models import GroundingModel, TwoBranchModel
from bifocal.models.base import TEXT_RANKS, Model
from bifocal.models.batch import Batch
from bifocal.registry import build, registered
from bifocal.text import TextBatch
from bifocal.training.precision import Precision, autocast_for
from tests.cuda.device import DEVICE, needs_device, relative_error

pytestmark = needs_device
IMAGES, DIM = 6, 8
SMALL = {"backbone": "resnet10t", "model_arguments": {"channels": (8, 16, 24, 32), "stem_width": 8}}
# Random numbers differ between devices: no dropout, no random crops, no drawn views.
IMAGE_ENCODERS: dict[str, list[dict[str, Any]]] = {
    "BEANEncoder": [
        {"backbone": None},
        {**SMALL, "input_dim": 3, "crop": None, "eval_resize": "as_is"},
    ],
    "LastLayersEncoder": [
        {**SMALL, "input_dim": 24, "layer": "layer3", "cells": 4, "mirror": False}
    ],
    "LinearEncoder": [{"standardize": True}],
    "MultiLevelEncoder": [{"levels": 2}],
    "RMACEncoder": [{**SMALL, "input_dim": 3}],
}
TOLERANCES: dict[Precision, tuple[float, float]] = {
    "float32": (1e-4, 1e-3),
    "bfloat16": (0.05, 0.3),
}
"""Relative errors of scores and of gradients."""


def image_encoders() -> list[dict[str, Any]]:
    names = sorted(registered("bifocal.image_encoders"))
    return [
        {"name": name, **arguments}
        for name in names
        for arguments in IMAGE_ENCODERS.get(name, [{}])
    ]


def new_model(image: dict[str, Any], text: str) -> Model:
    torch.manual_seed(0)
    images = build("bifocal.image_encoders", image, input_dim=12, dim=DIM, dropout=0.0)
    texts = build("bifocal.text_encoders", text, input_dim=12, dim=DIM, layers=2, dropout=0.0)
    kind = TwoBranchModel if images.single_vector else GroundingModel
    formats = {rank: name for name, rank in TEXT_RANKS.items()} | {2: "vectors"}
    text_format: Any = formats[len(texts.input_shape)]
    return kind(
        images,
        texts,
        text_format=text_format,
        vocabulary_size=30 if text_format == "tokens" else None,
    )


def batch(model: Model) -> Batch:
    features, *masks = example_inputs(model, "image_encoder", IMAGES, 4, 0)
    mask = masks[0] if masks else torch.ones(IMAGES, *features.shape[2:], dtype=torch.bool)
    text = TextBatch(*example_inputs(model, "text_encoder", IMAGES, 5, 0))
    regions = RegionBatch(features, mask, torch.empty(0))
    return Batch(["image"] * IMAGES, regions, text, torch.eye(IMAGES, dtype=torch.bool))


def scores_and_gradients(
    model: Model, device: torch.device, precision: Precision
) -> list[list[Tensor]]:
    model, inputs = copy.deepcopy(model).to(device).train(), batch(model).to(device)
    with autocast_for(device.type, precision)():
        scores = model(inputs)
    assert scores.cross.device.type == device.type
    # A loss of the differences between nearly equal scores would measure the rounding of bfloat16.
    weights = torch.randn(IMAGES, IMAGES, generator=torch.Generator().manual_seed(1)).to(device)
    (weights * scores.cross.float()).sum().backward()
    gradients = {
        name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }
    return [[scores.cross], [gradients[name] for name in sorted(gradients)]]


def check(model: Model, precision: Precision) -> None:
    actual = scores_and_gradients(model, DEVICE, precision)
    expected = scores_and_gradients(model, torch.device("cpu"), "float32")
    for found, true, tolerance in zip(actual, expected, TOLERANCES[precision], strict=True):
        assert relative_error(found, true) < tolerance


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(
    "image", image_encoders(), ids=lambda image: f"{image['name']}-{image.get('backbone')}"
)
def test_image_encoder_equals_the_cpu(image: dict[str, Any], precision: Precision) -> None:
    text = "ElmoMixtureEncoder" if image["name"] == "MultiLevelEncoder" else "LinearEncoder"
    check(new_model(image, text), precision)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("name", sorted(registered("bifocal.text_encoders")))
def test_text_encoder_equals_the_cpu(name: str, precision: Precision) -> None:
    """In mixed precision, cuDNN runs GRU and LSTM in float16, not in bfloat16."""
    check(new_model({"name": "SMILEEncoder"}, name), precision)
