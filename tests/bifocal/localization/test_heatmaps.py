"""Pixels and peaks of region scores."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.features.boxes import cell_boxes
from bifocal.localization import peak_points, rasterize, region_scores
from bifocal.localization.base import RegionScores
from bifocal.localization.heatmaps import has_peak
from bifocal.metrics import pointing_hits
from tests.bifocal.localization.inputs import draw


@given(seed=st.integers(0, 2**31))
def test_region_scores_equal_equation_4_3_and_rasterize_takes_best_region_of_each_pixel(
    seed: int,
) -> None:
    regions, texts = draw(seed, 2, 5, 4), draw(seed + 1, 2, 4)
    scores = region_scores(regions, texts)
    for image in range(2):
        for region in range(5):
            expected = sum(
                z * g
                for z, g in zip(texts[image].tolist(), regions[image, region].tolist(), strict=True)
            )
            assert scores[image, region].item() == pytest.approx(expected)
    corners = (
        torch.rand(5, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        .sort(dim=1)
        .values
    )
    boxes = corners.reshape(5, 4)
    heatmap = rasterize(scores[0], boxes, height=4, width=6)
    for row in range(4):
        for column in range(6):
            x, y = (column + 0.5) / 6, (row + 0.5) / 4
            inside = [
                score
                for score, (x0, y0, x1, y1) in zip(scores[0].tolist(), boxes.tolist(), strict=True)
                if x0 <= x < x1 and y0 <= y < y1
            ]
            assert heatmap[row, column].item() == pytest.approx(
                max(inside, default=scores[0].min().item())
            )


def test_peak_points_returns_best_cell_and_breaks_ties_by_position() -> None:
    boxes = cell_boxes(3, 3).expand(3, -1, -1)
    scores = torch.zeros(3, 9)
    scores[0, 2] = 1.0
    scores[1, 0] = scores[1, 8] = 1.0
    scores[2] = 1.0
    expected = torch.tensor([[5 / 6, 1 / 6], [1 / 6, 1 / 6], [0.5, 0.5]])
    torch.testing.assert_close(peak_points(RegionScores(scores, boxes)), expected)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        peak_points(RegionScores(scores[:, order], boxes[:, order])), expected
    )


def test_invalid_input_is_rejected() -> None:
    boxes = cell_boxes(2, 2).expand(1, -1, -1)
    for scores, region_boxes, expected in (
        (torch.full((1, 4), torch.nan), boxes, "NaN in 1 of 1"),
        (torch.full((1, 4), -torch.inf), boxes, "1 of 1 images have no region"),
        (torch.zeros(1, 4), boxes * torch.nan, "no box"),
    ):
        with pytest.raises(ValueError, match=expected):
            peak_points(RegionScores(scores, region_boxes))


def test_equal_scores_of_several_regions_have_no_peak() -> None:
    boxes = cell_boxes(2, 2).expand(4, -1, -1)
    nothing, padded = torch.zeros(4), torch.tensor([0.0, 0.0, -torch.inf, -torch.inf])
    single = torch.tensor([0.0, -torch.inf, -torch.inf, -torch.inf])
    scores = torch.stack([nothing, padded, single, torch.tensor([0.0, 0.1, 0.0, 0.0])])
    assert has_peak(RegionScores(scores, boxes)).tolist() == [False, False, True, True]


def test_the_corner_of_the_best_cell_is_the_point_of_beans_code() -> None:
    scores = RegionScores(torch.tensor([[0.1, 0.2, 0.9, 0.3]]), cell_boxes(2, 2).expand(1, -1, -1))
    corner = peak_points(scores, corner=True)
    assert corner.tolist() == [[0.0, 0.5]]
    box = [np.array([[0.0, 0.25, 0.5, 1.0]])]
    assert pointing_hits(corner.numpy(), box).tolist() == [True]
    assert pointing_hits(corner.numpy(), box, edges=False).tolist() == [False]
    assert pointing_hits(peak_points(scores).numpy(), box, edges=False).tolist() == [True]
