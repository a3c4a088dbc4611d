"""R-MAC against loops over regions, channels and dimensions."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.backbones.whitening import Whitening
from bifocal.image_encoders import RMACEncoder
from bifocal.image_encoders.rmac import (
    grid_regions,
    region_maxima,
    region_maxima_of_any_size,
)

SMALL = {"channels": (8, 16, 24, 32), "stem_width": 8}


def unit(vector: list[float]) -> list[float]:
    norm = math.sqrt(sum(value * value for value in vector))
    return [value / norm for value in vector]


def rmac(maps: torch.Tensor, scales: int, whitening: Whitening) -> list[float]:
    """Tolias et al., section 3; Gordo et al., section 3, over one map (C, h, w)."""
    channels, height, width = maps.shape
    short = min(height, width)
    extra = 0
    if height != width:  # extra regions on the longer side, so that neighbors overlap by about 40 %
        overlap = [1 - (max(height, width) - short) / steps / short for steps in range(1, 7)]
        extra = 1 + int(np.argmin(np.abs(np.array(overlap) - 0.4)))
    total = [0.0] * len(whitening.projection)
    for scale in range(1, scales + 1):
        side = math.floor(2 * short / (scale + 1))
        counts = [
            scale + (extra if height > width else 0),
            scale + (extra if width > height else 0),
        ]
        strides = [
            (length - side) / max(count - 1, 1)
            for length, count in zip((height, width), counts, strict=True)
        ]
        for row in range(counts[0]):
            for column in range(counts[1]):
                top, left = (
                    math.floor(row * strides[0] + 1e-9),
                    math.floor(column * strides[1] + 1e-9),
                )
                cells = [(y, x) for y in range(top, top + side) for x in range(left, left + side)]
                region = unit(
                    [max(maps[c, y, x].item() for y, x in cells) for c in range(channels)]
                )
                centered = [
                    value - mean
                    for value, mean in zip(region, whitening.mean.tolist(), strict=True)
                ]
                white = unit(
                    [
                        sum(p * v for p, v in zip(r, centered, strict=True))
                        for r in whitening.projection.tolist()
                    ]
                )
                total = [a + b for a, b in zip(total, white, strict=True)]
    return unit(total)


def random_whitening(dim: int, channels: int = 32) -> Whitening:
    generator = torch.Generator().manual_seed(2)
    return Whitening(
        *(torch.randn(*shape, generator=generator) for shape in ((channels,), (dim, channels)))
    )


@given(height=st.integers(3, 40), width=st.integers(3, 40), scales=st.integers(1, 3))
def test_grid_regions_are_inside_the_map_and_reach_its_borders(
    height: int, width: int, scales: int
) -> None:
    regions = grid_regions(height, width, scales)
    for top, left, side in regions:
        assert 0 <= top <= height - side
        assert 0 <= left <= width - side
    largest = [region for region in regions if region[2] == min(height, width)]
    assert max(top + side for top, _, side in largest) == height
    assert max(left + side for _, left, side in largest) == width
    mirrored = {(left, top, side) for top, left, side in grid_regions(width, height, scales)}
    assert mirrored == set(regions)


def published_grid(height: int, width: int, scales: int) -> list[tuple[int, int, int]]:
    """The grid by the formulas of the authors' code, in NumPy."""
    short, longer = min(height, width), max(height, width)
    overlaps = (short**2 - short * ((longer - short) / np.arange(1.0, 7.0))) / short**2
    extra = 0 if height == width else 1 + int(np.argmin(np.abs(overlaps - 0.4)))
    regions = []
    for scale in range(1, scales + 1):
        side = np.floor(2 * short / (scale + 1))
        half = np.floor(side / 2 - 1)
        along = []
        for length, more in ((height, height > width), (width, width > height)):
            count = scale + more * extra
            step = (length - side) / (count - 1) if count > 1 else 0.0
            along.append((np.floor(half + step * np.arange(count)) - half).astype(int).tolist())
        regions += [(top, left, int(side)) for top in along[0] for left in along[1]]
    return regions


def test_grid_regions_are_those_of_the_authors_code() -> None:
    for height, width in product(range(2, 40), repeat=2):
        assert grid_regions(height, width, 2) == published_grid(height, width, 2), (height, width)


def test_grid_regions_of_an_18_by_12_map_are_those_of_the_paper() -> None:
    # One extra region on the longer side: squares of 12 at 0 and 6; an overlap of 50 % is the
    # closest to 40 %.
    assert grid_regions(18, 12, 2)[:2] == [(0, 0, 12), (6, 0, 12)]
    assert len(grid_regions(18, 12, 2)) == 2 + 3 * 2


def test_grid_regions_of_a_map_that_is_too_small_are_an_error() -> None:
    with pytest.raises(ValueError, match="map of 1 x 4 cells has no regions at scale 2"):
        grid_regions(1, 4, 2)


@given(height=st.integers(2, 24), width=st.integers(2, 24), scales=st.integers(1, 3))
def test_maxima_of_any_size_are_those_of_the_grid(height: int, width: int, scales: int) -> None:
    maps = torch.randn(2, 4, height, width, generator=torch.Generator().manual_seed(0))
    maxima, present = region_maxima_of_any_size(maps, scales)
    largest = next(scale for scale in range(scales, 0, -1) if 2 * min(height, width) >= scale + 1)
    regions = sorted(region_maxima(maps, largest)[0].tolist())
    assert sorted(maxima[0, present].tolist()) == regions
    assert not maxima[:, ~present].isfinite().any()


@pytest.mark.parametrize("size", [(150, 96), (96, 160), (128, 128)])
def test_encoder_equals_the_loop(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    encoder = RMACEncoder(dim=6, backbone="resnet10t", model_arguments=SMALL).eval()
    whitening = random_whitening(6)
    encoder.set_whitening(whitening)
    height, width = size
    pixels = torch.randint(0, 256, (3, height, width), dtype=torch.uint8)
    padded, mask = torch.zeros(2, 3, 200, 200), torch.zeros(2, 200, 200, dtype=torch.bool)
    padded[0, :, :height, :width], mask[0, :height, :width], mask[1, :64, :64] = pixels, True, True
    with torch.inference_mode():
        maps = encoder.backbone(pixels[None].float())[0]
    expected = rmac(maps, 2, whitening)
    torch.testing.assert_close(encoder(padded, mask)[0].tolist(), expected, rtol=1e-4, atol=1e-5)
    statistics = encoder.backbone.network.bn1.running_mean.clone()
    encoder.train()
    encoder(padded, mask).sum().backward()
    assert all(weight.grad is not None for weight in encoder.parameters())
    for module in (encoder, encoder.backbone):  # train() of either must not change the statistics
        module.train()
        encoder(padded, mask)
        assert encoder.backbone.network.bn1.running_mean.equal(statistics)
