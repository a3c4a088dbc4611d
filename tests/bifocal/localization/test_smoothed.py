"""Smoothed activations against loops in float64."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders import LinearEncoder
from bifocal.localization import SmoothedActivations
from bifocal.localization.base import RegionVectors


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def heatmap(
    scores: list[float], centers: list[tuple[float, float]], sigma: float, center: float
) -> list[float]:
    """Return the scores of the regions of one image, as the class states them."""
    smoothed = []
    for x, y in centers:
        weights = [math.exp(-((x - u) ** 2 + (y - v) ** 2) / (2 * sigma**2)) for u, v in centers]
        smoothed.append(sum(w * s for w, s in zip(weights, scores, strict=True)) / sum(weights))
    mean = sum(smoothed) / len(smoothed)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in smoothed) / len(smoothed))
    return [
        (value - mean) / deviation - center * ((2 * x - 1) ** 2 + (2 * y - 1) ** 2)
        for value, (x, y) in zip(smoothed, centers, strict=True)
    ]


@pytest.mark.parametrize(("sigma", "center"), [(0.2, 0.7), (1e-4, 0.0), (0.6, 2.0)])
def test_scores_are_those_of_the_loops_and_padding_has_none(sigma: float, center: float) -> None:
    vectors, texts = draw(2, 9, 5), draw(3, 5)[:2]
    boxes = cell_boxes(3, 3).double().repeat(2, 1, 1)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 6:] = False
    boxes[1, 6:] = torch.nan
    scores, _ = SmoothedActivations(sigma, center).score(RegionVectors(vectors, mask, boxes), texts)
    for image, count in enumerate((9, 6)):
        products = [float(vectors[image, row] @ texts[image]) for row in range(count)]
        centers = [((row % 3 + 0.5) / 3, (row // 3 + 0.5) / 3) for row in range(count)]
        assert scores[image, :count].tolist() == pytest.approx(
            heatmap(products, centers, sigma, center)
        )
        assert (scores[image, count:] == -torch.inf).all()


def test_without_smoothing_and_prior_regions_are_ordered_by_their_share_of_the_score() -> None:
    encoder, texts = LinearEncoder(4, 5).double(), draw(2, 5)
    regions = RegionBatch(
        draw(2, 9, 4), torch.ones(2, 9, dtype=torch.bool), cell_boxes(3, 3).expand(2, -1, -1)
    )
    maps = SmoothedActivations().encode(encoder, regions).vectors
    torch.testing.assert_close(
        normalize(maps.mean(dim=1), dim=1), encoder(regions.features, regions.mask)
    )
    scores, _ = SmoothedActivations(sigma=0.0, center=0.0)(encoder, regions, texts)
    assert scores.argsort(dim=1).equal(torch.einsum("nrd,nd->nr", maps, texts).argsort(dim=1))


@pytest.mark.parametrize("arguments", [{"sigma": -0.1}, {"center": -1.0}])
def test_negative_values_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected 0 or more"):
        SmoothedActivations(**arguments)
