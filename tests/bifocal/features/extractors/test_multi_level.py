"""Multi-level features against direct calls of the modules and bilinear interpolation as a loop."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from bifocal.features.boxes import cell_boxes
from bifocal.features.extractors import MultiLevel

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}
EQUAL = SMALL | {"channels": (8, 16, 16, 32)}


def bilinear(level: Tensor, cells: int) -> Tensor:
    """Resample (C, h, w) to (C, cells, cells) by interpolation between the centers of the four
    nearest cells."""
    channels, height, width = level.shape
    result = torch.zeros(channels, cells, cells)
    for row in range(cells):
        for column in range(cells):
            y = min(max((row + 0.5) * height / cells - 0.5, 0), height - 1)
            x = min(max((column + 0.5) * width / cells - 0.5, 0), width - 1)
            top, left = int(y), int(x)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            upper = (1 - (x - left)) * level[:, top, left] + (x - left) * level[:, top, right]
            lower = (1 - (x - left)) * level[:, bottom, left] + (x - left) * level[:, bottom, right]
            result[:, row, column] = (1 - (y - top)) * upper + (y - top) * lower
    return result


def test_multi_level_resamples_each_level_to_the_same_cells() -> None:
    torch.manual_seed(0)
    extractor = MultiLevel(
        "resnet10t", layers=("layer2", "layer3"), cells=3, size=64, model_arguments=EQUAL
    )
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    pixels = extractor.preprocess(image)
    ((features, boxes, *_),) = extractor.extract([pixels])
    network = extractor.backbone.network
    inputs = extractor.backbone.normalize(pixels.unsqueeze(0))
    low = network.layer2(
        network.layer1(network.maxpool(network.act1(network.bn1(network.conv1(inputs)))))
    )
    high = network.layer3(low)
    assert (extractor.regions, extractor.dim) == features.shape == (18, 16)
    torch.testing.assert_close(features[:9], bilinear(low[0], 3).flatten(1).T, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        features[9:], bilinear(high[0], 3).flatten(1).T, rtol=1e-4, atol=1e-5
    )
    assert boxes is not None
    assert boxes.tolist() == cell_boxes(3, 3).tolist() * 2


@pytest.mark.parametrize(
    ("arguments", "maps"),
    [
        ({}, [(512, 37), (512, 37), (512, 18), (512, 18)]),
        (
            {
                "backbone": "pnasnet5large",
                "layers": ("cell_5", "cell_7", "cell_9", "cell_11"),
                "cells": 19,
            },
            [(2160, 19), (2160, 19), (4320, 10), (4320, 10)],
        ),
    ],
)
def test_multi_level_maps_have_the_sizes_of_the_paper(
    arguments: dict[str, Any], maps: list[tuple[int, int]]
) -> None:
    with torch.device("meta"):
        extractor = MultiLevel(**arguments)
        levels = extractor.backbone.layer_maps(
            torch.zeros(1, 3, 300, 300, dtype=torch.uint8), extractor.layers
        )
    assert [(level.shape[1], level.shape[2]) for level in levels] == maps


def test_levels_of_different_widths_are_not_stored() -> None:
    extractor = MultiLevel(
        "resnet10t", layers=("layer2", "layer3"), cells=3, size=64, model_arguments=SMALL
    )
    with pytest.raises(ValueError, match=r"layer2, layer3 of resnet10t have \[16, 24\] channels"):
        _ = extractor.dim


def test_multi_level_with_an_unknown_layer_is_an_error() -> None:
    with pytest.raises(ValueError, match="resnet10t has no layer 'layer5'; did you mean 'layer"):
        MultiLevel("resnet10t", layers=("layer5",))
