"""The head of contrastive towers against loops over its equation, on small random towers of
open_clip."""

import math
from typing import Any

import pytest
import torch

from bifocal.backbones.open_clip import OpenClipBackbone
from bifocal.localization.heads import MaskCLIP
from tests.bifocal.contrastive import SMALL

Rows = list[list[float]]


def layer_norm(layer: Any, row: list[float]) -> list[float]:
    mean = sum(row) / len(row)
    variance = sum((value - mean) ** 2 for value in row) / len(row)
    scaled = [(value - mean) / math.sqrt(variance + layer.eps) for value in row]
    return [
        w * v + b
        for v, w, b in zip(scaled, layer.weight.tolist(), layer.bias.tolist(), strict=True)
    ]


def linear(weight: Rows, bias: list[float], row: list[float]) -> list[float]:
    return [
        sum(w * v for w, v in zip(of_output, row, strict=True)) + b
        for of_output, b in zip(weight, bias, strict=True)
    ]


def attended(attention: Any, token: list[float]) -> list[float]:
    """Return the projected value of a token."""
    width = len(token)
    joined = linear(attention.in_proj_weight.tolist(), attention.in_proj_bias.tolist(), token)
    return linear(
        attention.out_proj.weight.tolist(), attention.out_proj.bias.tolist(), joined[2 * width :]
    )


def loop(tower: Any, images: torch.Tensor) -> list[Rows]:
    """Return unit vectors of the patches of each image."""
    tokens = tower._embeds(images)
    for block in tower.transformer.resblocks[:-1]:
        tokens = block(tokens)
    last, found = tower.transformer.resblocks[-1], []
    projection = tower.proj.T.tolist()
    for image in tokens.tolist():
        changes = [attended(last.attn, layer_norm(last.ln_1, token)) for token in image]
        vectors = []
        for token, change in zip(image, changes, strict=True):
            x = [a + b for a, b in zip(token, change, strict=True)]
            hidden = linear(
                last.mlp.c_fc.weight.tolist(), last.mlp.c_fc.bias.tolist(), layer_norm(last.ln_2, x)
            )
            hidden = [value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in hidden]  # GELU
            y = linear(last.mlp.c_proj.weight.tolist(), last.mlp.c_proj.bias.tolist(), hidden)
            final = layer_norm(tower.ln_post, [a + b for a, b in zip(x, y, strict=True)])
            vector = linear(projection, [0.0] * len(projection), final)
            norm = math.sqrt(sum(value * value for value in vector))
            vectors.append([value / norm for value in vector])
        found.append(vectors[1:])
    return found


def test_patches_are_the_equation() -> None:
    torch.manual_seed(0)
    tower = OpenClipBackbone("ViT-B-32", None, SMALL).network.double().visual
    for parameter in tower.parameters():
        parameter.data.add_(
            0.3 * torch.randn_like(parameter)
        )  # biases are 0 and norms are 1 before training
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        patches = MaskCLIP().patches(tower, images)
        expected = torch.tensor(loop(tower, images), dtype=torch.float64)
    assert patches.shape == (2, 4, 4, 12)
    torch.testing.assert_close(patches.flatten(1, 2), expected)


@pytest.mark.parametrize("arguments", [{"size": 0}, {"sigma": -1.0}, {"center": -0.5}])
def test_wrong_arguments_are_errors(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected a positive size"):
        MaskCLIP(**arguments)
