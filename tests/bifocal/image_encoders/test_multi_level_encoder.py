"""The multi-level mapping against a loop over layers, cells and channels."""

import math

import pytest
import torch
from torch import nn

from bifocal.image_encoders import MultiLevelEncoder


def mapped(level: nn.Sequential, cell: list[float], slope: float) -> list[float]:
    """Three 1 x 1 convolutions, LeakyReLU between them, unit norm."""
    layers = [layer for layer in level if isinstance(layer, nn.Linear)]
    assert len(layers) == 3
    for number, layer in enumerate(layers):
        rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        cell = [sum(w * x for w, x in zip(row, cell, strict=True)) + b for row, b in rows]
        if number < 2:
            cell = [value if value > 0 else slope * value for value in cell]
    norm = math.sqrt(sum(value * value for value in cell))
    return [value / norm for value in cell]


def test_each_level_has_three_convolutions_of_its_own() -> None:
    torch.manual_seed(0)
    encoder = MultiLevelEncoder(5, 4, levels=2).double()
    features, mask = torch.randn(3, 2 * 9, 5, dtype=torch.float64), torch.ones(3, 18, dtype=torch.bool)
    mask[2, 16:] = False
    found = encoder(features, mask)
    assert found.shape == (3, 2, 9, 4)
    for image in range(3):
        for level in range(2):
            for cell in range(9):
                own = features[image, 9 * level + cell].tolist()
                expected = mapped(encoder.levels[level], own, 0.25) if mask[image, 9 * level + cell] else [0.0] * 4
                torch.testing.assert_close(found[image, level, cell].tolist(), expected)


def test_an_order_of_the_cells_is_kept() -> None:
    encoder = MultiLevelEncoder(5, 4, levels=2).double()
    features, mask = torch.randn(2, 2, 9, 5, dtype=torch.float64), torch.ones(2, 18, dtype=torch.bool)
    order = torch.randperm(9)
    found = encoder(features[:, :, order].flatten(1, 2), mask)
    torch.testing.assert_close(found, encoder(features.flatten(1, 2), mask)[:, :, order])


def test_cells_that_are_no_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="19 cells, not a multiple of 2 levels"):
        MultiLevelEncoder(5, 4, levels=2)(torch.zeros(1, 19, 5), torch.ones(1, 19, dtype=torch.bool))
