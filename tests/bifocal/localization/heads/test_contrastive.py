"""Heads of contrastive towers against loops over their equations, on small random towers of open_clip."""

import math
from typing import Any

import pytest
import torch

from bifocal.backbones.open_clip import OpenClipBackbone
from bifocal.localization.heads import SCLIP, MaskCLIP, ProxyCLIP
from bifocal.localization.heads.contrastive import ContrastiveHead
from tests.bifocal.contrastive import SMALL

Rows = list[list[float]]


def layer_norm(layer: Any, row: list[float]) -> list[float]:
    mean = sum(row) / len(row)
    variance = sum((value - mean) ** 2 for value in row) / len(row)
    scaled = [(value - mean) / math.sqrt(variance + layer.eps) for value in row]
    return [w * v + b for v, w, b in zip(scaled, layer.weight.tolist(), layer.bias.tolist(), strict=True)]


def linear(weight: Rows, bias: list[float], row: list[float]) -> list[float]:
    return [
        sum(w * v for w, v in zip(of_output, row, strict=True)) + b for of_output, b in zip(weight, bias, strict=True)
    ]


def softmax(values: list[float]) -> list[float]:
    exponents = [math.exp(value - max(values)) for value in values]
    return [value / sum(exponents) for value in exponents]


def attended(name: str, attention: Any, tokens: Rows) -> Rows:
    """Return the equation of a head, token by token and attention head by attention head."""
    joined = [linear(attention.in_proj_weight.tolist(), attention.in_proj_bias.tolist(), token) for token in tokens]
    width, heads = len(tokens[0]), attention.num_heads
    size = width // heads
    outputs: Rows = []
    for place in range(len(tokens)):
        merged: list[float] = []
        for head in range(heads):
            part = range(head * size, (head + 1) * size)
            values = [[row[2 * width + column] for column in part] for row in joined]
            if name == "MaskCLIP":
                merged += values[place]
                continue
            total = [0.0] * size
            for start in (0, width):  # queries with queries, then keys with keys
                own = [[row[start + column] for column in part] for row in joined]
                products = [sum(a * b for a, b in zip(own[place], other, strict=True)) for other in own]
                for weight, value in zip(softmax([v / math.sqrt(size) for v in products]), values, strict=True):
                    total = [t + weight * v for t, v in zip(total, value, strict=True)]
            merged += total
        outputs.append(linear(attention.out_proj.weight.tolist(), attention.out_proj.bias.tolist(), merged))
    return outputs


def loop(name: str, tower: Any, images: torch.Tensor) -> list[Rows]:
    """Return unit vectors of the patches of each image."""
    tokens = tower._embeds(images)
    for block in tower.transformer.resblocks[:-1]:
        tokens = block(tokens)
    last, found = tower.transformer.resblocks[-1], []
    projection = tower.proj.T.tolist()
    for image in tokens.tolist():
        changes = attended(name, last.attn, [layer_norm(last.ln_1, token) for token in image])
        vectors = []
        for token, change in zip(image, changes, strict=True):
            x = [a + b for a, b in zip(token, change, strict=True)]
            hidden = linear(last.mlp.c_fc.weight.tolist(), last.mlp.c_fc.bias.tolist(), layer_norm(last.ln_2, x))
            hidden = [value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in hidden]  # GELU
            y = linear(last.mlp.c_proj.weight.tolist(), last.mlp.c_proj.bias.tolist(), hidden)
            final = layer_norm(tower.ln_post, [a + b for a, b in zip(x, y, strict=True)])
            vector = linear(projection, [0.0] * len(projection), final)
            norm = math.sqrt(sum(value * value for value in vector))
            vectors.append([value / norm for value in vector])
        found.append(vectors[1:])
    return found


def resized(rows: Rows, side: int, size: int) -> Rows:
    """Return vectors of a square map, interpolated to another side by bilinear weights of the centers of cells."""
    places = [min(max((place + 0.5) * side / size - 0.5, 0), side - 1) for place in range(size)]
    found: Rows = []
    for y in places:
        for x in places:
            top, left = min(int(y), side - 2), min(int(x), side - 2)
            corners = [
                ((1 - y + top) if row == top else y - top, (1 - x + left) if column == left else x - left, row, column)
                for row in (top, top + 1)
                for column in (left, left + 1)
            ]
            found.append(
                [
                    sum(a * b * rows[row * side + column][c] for a, b, row, column in corners)
                    for c in range(len(rows[0]))
                ]
            )
    return found


def proxy_loop(tower: Any, images: torch.Tensor, cells: torch.Tensor, beta: float, gamma: float) -> list[Rows]:
    """Return unit vectors of the cells of each image: ProxyCLIP's equation."""
    tokens = tower._embeds(images)
    for block in tower.transformer.resblocks[:-1]:
        tokens = block(tokens)
    last, found = tower.transformer.resblocks[-1], []
    width, projection = tokens.shape[2], tower.proj.T.tolist()
    for image, own in zip(tokens.tolist(), cells.flatten(2).transpose(1, 2).tolist(), strict=True):
        joined = [
            linear(last.attn.in_proj_weight.tolist(), last.attn.in_proj_bias.tolist(), layer_norm(last.ln_1, token))
            for token in image[1:]
        ]
        values = resized([row[2 * width :] for row in joined], 4, cells.shape[2])
        lengths = [math.sqrt(sum(value * value for value in cell)) for cell in own]
        cosines = [
            [sum(a * b for a, b in zip(p, q, strict=True)) / m / n for q, n in zip(own, lengths, strict=True)]
            for p, m in zip(own, lengths, strict=True)
        ]
        mean = sum(sum(row) for row in cosines) / len(own) ** 2
        vectors = []
        for place, row in enumerate(cosines):
            scores = [gamma * (value - beta * mean) for value in row]
            shown = [other for other, score in enumerate(scores) if score >= 0 or other == place]
            weights = softmax([scores[other] for other in shown])
            mixed = [sum(w * values[o][c] for w, o in zip(weights, shown, strict=True)) for c in range(width)]
            output = linear(last.attn.out_proj.weight.tolist(), last.attn.out_proj.bias.tolist(), mixed)
            vector = linear(projection, [0.0] * len(projection), layer_norm(tower.ln_post, output))
            norm = math.sqrt(sum(value * value for value in vector))
            vectors.append([value / norm for value in vector])
        found.append(vectors)
    return found


@pytest.mark.parametrize(("beta", "positive"), [(1.2, False), (2.0, True)])
@pytest.mark.parametrize("side", [4, 5])
def test_proxy_attention_is_the_equation(side: int, beta: float, positive: bool) -> None:
    torch.manual_seed(0)
    tower = OpenClipBackbone("ViT-B-32", None, SMALL).network.double().visual
    for parameter in tower.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    # With positive cells and beta 2, no cell is near another one: each attends only to itself.
    cells = torch.randn(2, 6, side, side, dtype=torch.float64) + 5 * positive
    head = ProxyCLIP(beta=beta)
    with torch.no_grad():
        patches = head.patches(tower, images, cells)
        expected = torch.tensor(proxy_loop(tower, images, cells, beta, head.gamma), dtype=torch.float64)
    assert patches.shape == (2, side, side, 12)
    torch.testing.assert_close(patches.flatten(1, 2), expected)


@pytest.mark.parametrize("head", [MaskCLIP(), SCLIP()], ids=["MaskCLIP", "SCLIP"])
def test_patches_are_the_equation(head: ContrastiveHead) -> None:
    torch.manual_seed(0)
    tower = OpenClipBackbone("ViT-B-32", None, SMALL).network.double().visual
    for parameter in tower.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))  # biases are 0 and norms are 1 before training
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        patches = head.patches(tower, images)
        expected = torch.tensor(loop(type(head).__name__, tower, images), dtype=torch.float64)
    assert patches.shape == (2, 4, 4, 12)
    torch.testing.assert_close(patches.flatten(1, 2), expected)


@pytest.mark.parametrize("arguments", [{"size": 0}, {"sigma": -1.0}, {"center": -0.5}])
@pytest.mark.parametrize("part", [MaskCLIP, SCLIP, ProxyCLIP])
def test_wrong_arguments_are_errors(part: type[ContrastiveHead], arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected a positive size"):
        part(**arguments)


def test_a_factor_that_is_not_positive_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"gamma is 0\.0: expected a positive factor"):
        ProxyCLIP(gamma=0.0)
