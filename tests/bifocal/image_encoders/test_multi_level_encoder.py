"""MultiLevelEncoder against a loop over layers, cells and channels."""

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


def test_multi_level_encoder_applies_three_convolutions_per_level() -> None:
    torch.manual_seed(0)
    encoder = MultiLevelEncoder(5, 4, levels=2).double()
    features, mask = torch.randn(3, 2 * 9, 5, dtype=torch.float64), torch.ones(3, 18, dtype=torch.bool)
    mask[2, 16:] = False
    embeddings = encoder(features, mask)
    assert embeddings.shape == (3, 2, 9, 4)
    for image in range(3):
        for level in range(2):
            for cell in range(9):
                feature = features[image, 9 * level + cell].tolist()
                expected = mapped(encoder.levels[level], feature, 0.25) if mask[image, 9 * level + cell] else [0.0] * 4
                torch.testing.assert_close(embeddings[image, level, cell].tolist(), expected)


def test_multi_level_encoder_keeps_order_of_cells() -> None:
    encoder = MultiLevelEncoder(5, 4, levels=2).double()
    features, mask = torch.randn(2, 2, 9, 5, dtype=torch.float64), torch.ones(2, 18, dtype=torch.bool)
    order = torch.randperm(9)
    embeddings = encoder(features[:, :, order].flatten(1, 2), mask)
    torch.testing.assert_close(embeddings, encoder(features.flatten(1, 2), mask)[:, :, order])


def test_multi_level_encoder_rejects_number_of_cells_not_divisible_by_levels() -> None:
    with pytest.raises(ValueError, match="19 cells, not a multiple of 2 levels"):
        MultiLevelEncoder(5, 4, levels=2)(torch.zeros(1, 19, 5), torch.ones(1, 19, dtype=torch.bool))
