"""Localization against loops over the papers' equations."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders import BEANEncoder, LinearEncoder, MultiLevelEncoder, ProjectionEncoder, SMILEEncoder
from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization import (
    BEANHeatmap,
    MultiLevelHeatmap,
    PerRegionLocalizer,
    SMILERegions,
    SmoothedActivations,
    attend,
    bean_heatmaps,
    class_activation_maps,
    pair_heatmaps,
    peak_points,
    phrase_heatmap,
    rasterize,
    region_scores,
    sentence_heatmap,
)
from bifocal.localization.base import Localizer, RegionScores


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=st.integers(0, 2**31), k=st.integers(1, 9))
def test_bean_heatmaps_equal_equations_8_and_9(seed: int, k: int) -> None:
    features, projection, texts = draw(seed, 2, 4, 3), draw(seed + 1, 6, 3), draw(seed + 2, 2, 6)
    heatmaps = bean_heatmaps(class_activation_maps(features, projection), texts, k)
    for image in range(2):
        v = texts[image].tolist()
        largest = sorted(range(6), key=lambda u: -v[u])[:k]
        for cell in range(4):
            g = [sum(projection[u, c].item() * features[image, cell, c].item() for c in range(3)) for u in range(6)]
            assert heatmaps[image, cell].item() == pytest.approx(sum(abs(v[u]) * g[u] for u in largest))


@given(seed=st.integers(0, 2**31))
def test_region_scores_equal_equation_4_3_and_rasterize_takes_best_region_of_each_pixel(seed: int) -> None:
    regions, texts = draw(seed, 2, 5, 4), draw(seed + 1, 2, 4)
    scores = region_scores(regions, texts)
    for image in range(2):
        for region in range(5):
            expected = sum(z * g for z, g in zip(texts[image].tolist(), regions[image, region].tolist(), strict=True))
            assert scores[image, region].item() == pytest.approx(expected)
    corners = torch.rand(5, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).sort(dim=1).values
    boxes = corners.reshape(5, 4)
    heatmap = rasterize(scores[0], boxes, height=4, width=6)
    for row in range(4):
        for column in range(6):
            x, y = (column + 0.5) / 6, (row + 0.5) / 4
            inside = [
                score for score, (x0, y0, x1, y1) in zip(scores[0].tolist(), boxes.tolist(), strict=True)
                if x0 <= x < x1 and y0 <= y < y1
            ]  # fmt: skip
            assert heatmap[row, column].item() == pytest.approx(max(inside, default=scores[0].min().item()))


@given(seed=st.integers(0, 2**31))
def test_attend_and_heatmaps_equal_equations_1_to_6(seed: int) -> None:
    words, cells = normalize(draw(seed, 3, 4), dim=1), normalize(draw(seed + 1, 2, 5, 4), dim=2)
    attention, of_sentence = attend(words, cells), sentence_heatmap(words[0], cells)
    maps, pertinences = [], []
    for t, unit in [(0, True), (1, True), (2, True), (0, False)]:
        best = (-math.inf, [0.0])
        for level in range(2):
            heat = [max(0.0, float(words[t] @ cells[level, n])) for n in range(5)]
            attended = sum(heat[n] * cells[level, n] for n in range(5))
            norm = float(attended.norm()) if unit else 1.0
            pertinence = float(attended @ words[t]) / norm if norm else 0.0
            best = max(best, (pertinence, heat))
        pertinences.append(best[0])
        maps.append(best[1])
    assert attention.pertinence.tolist() == pytest.approx(pertinences[:3])
    for t in range(3):
        assert attention.heatmaps[t].tolist() == pytest.approx(maps[t])
    assert of_sentence.tolist() == pytest.approx(maps[3])
    total = sum(pertinences[:3])
    if total > 1e-6:
        expected = [sum(pertinences[t] * maps[t][n] for t in range(3)) / total for n in range(5)]
        assert phrase_heatmap(words, cells).tolist() == pytest.approx(expected)


def test_pair_heatmaps_weight_activations_by_gradient_of_top_dimensions() -> None:
    """The embedding is W mean(A): the gradient of dimension u is W[u] / R in each cell."""
    weights, first, second = draw(0, 6, 3), draw(1, 4, 3), draw(2, 5, 3)

    def embed(activations: Tensor) -> Tensor:
        return weights @ activations.mean(dim=0)

    with torch.inference_mode():
        heatmaps = pair_heatmaps(embed, first, second, k=2)
    contributions = embed(first) * embed(second)
    top = sorted(range(6), key=lambda u: -contributions[u].item())[:2]
    for image, heatmap in zip((first, second), heatmaps, strict=True):
        gradient = (weights[top[0]] + weights[top[1]]) / len(image)
        assert heatmap.tolist() == pytest.approx([max(0.0, float(cell @ gradient)) for cell in image])


def test_peak_points_returns_best_cell_and_breaks_ties_by_position() -> None:
    boxes = cell_boxes(3, 3).expand(3, -1, -1)
    scores = torch.zeros(3, 9)
    scores[0, 2] = 1.0
    scores[1, 0] = scores[1, 8] = 1.0
    scores[2] = 1.0
    expected = torch.tensor([[5 / 6, 1 / 6], [1 / 6, 1 / 6], [0.5, 0.5]])
    torch.testing.assert_close(peak_points(RegionScores(scores, boxes)), expected)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(peak_points(RegionScores(scores[:, order], boxes[:, order])), expected)


def batch(dim: int, regions: int = 4) -> RegionBatch:
    mask = torch.ones(2, regions, dtype=torch.bool)
    mask[1, -1] = False
    return RegionBatch(
        draw(3, 2, regions, dim).half(), mask, cell_boxes(2, 2).repeat(regions // 4, 1).expand(2, -1, -1)
    )


ENCODERS = {
    SMILERegions: lambda: SMILEEncoder(3, 6),
    BEANHeatmap: lambda: BEANEncoder(3, 6, maps=5, backbone=None),
    MultiLevelHeatmap: lambda: MultiLevelEncoder(3, 6, levels=2),
    PerRegionLocalizer: lambda: ProjectionEncoder(3, 6, hidden=5),
}


@pytest.mark.parametrize("localizer", ENCODERS)
def test_localizer_points_inside_image_and_ignores_padding(localizer: type) -> None:
    encoder = ENCODERS[localizer]().eval()
    regions = batch(3, 8 if localizer is MultiLevelHeatmap else 4)
    texts = normalize(draw(4, 2, 6).float(), dim=1)
    auto = encoder.localizer()
    assert type(auto) is localizer
    with torch.inference_mode():
        result = localizer()(encoder, regions, texts)
        from_auto = auto(encoder, regions, texts)
    torch.testing.assert_close(result.scores, from_auto.scores)
    assert result.scores.shape == (2, 4)
    if localizer is not MultiLevelHeatmap:
        assert result.scores[1, 3] == -torch.inf
    points = peak_points(result)
    assert ((points > 0) & (points < 1)).all()


def test_attended_smile_scores_sum_to_score_of_image() -> None:
    encoder, regions = SMILEEncoder(3, 6).eval(), batch(3)
    texts = normalize(draw(5, 2, 6).float(), dim=1)
    with torch.inference_mode():
        parts = SMILERegions(attended=True)(encoder, regions, texts).scores
        pooled = normalize(encoder.convolution(regions.features.float()), dim=2)
        whole = (encoder.weights(pooled, regions.mask) * pooled).sum(dim=1)
    torch.testing.assert_close(parts.masked_fill(~regions.mask, 0).sum(dim=1), (whole * texts).sum(dim=1))


@pytest.mark.parametrize(
    ("localizer", "encoder"),
    [
        (SMILERegions(), LinearEncoder(3, 6)),
        (MultiLevelHeatmap(), LinearEncoder(3, 6)),
        (BEANHeatmap(), ProjectionEncoder(3, 6, hidden=4)),
        (SmoothedActivations(), ProjectionEncoder(3, 6, hidden=4)),
    ],
)
def test_localizers_reject_encoders_without_their_vectors(localizer: Localizer, encoder: ImageEncoder) -> None:
    with pytest.raises(ValueError, match=type(encoder).__name__):
        localizer(encoder, batch(3), torch.zeros(2, 6))


def test_linear_encoder_has_no_localizer_of_its_own() -> None:
    assert LinearEncoder(3, 6).localizer() is None


def test_invalid_input_is_rejected() -> None:
    boxes = cell_boxes(2, 2).expand(1, -1, -1)
    for scores, region_boxes, expected in (
        (torch.full((1, 4), torch.nan), boxes, "NaN in 1 of 1"),
        (torch.full((1, 4), -torch.inf), boxes, "1 of 1 images have no region"),
        (torch.zeros(1, 4), boxes * torch.nan, "no box"),
    ):
        with pytest.raises(ValueError, match=expected):
            peak_points(RegionScores(scores, region_boxes))
    for call, expected in (
        (lambda: bean_heatmaps(torch.zeros(1, 4, 3), torch.zeros(1, 2)), "one text"),
        (lambda: bean_heatmaps(torch.zeros(1, 4, 3), torch.zeros(1, 3), k=0), "at least one dimension"),
        (lambda: region_scores(torch.zeros(1, 4, 3), torch.zeros(2, 3)), "one text"),
        (lambda: phrase_heatmap(torch.zeros(0, 3), torch.zeros(1, 4, 3)), "has no word"),
        (lambda: attend(torch.zeros(1, 2), torch.zeros(1, 4, 3)), "differ"),
        (lambda: pair_heatmaps(lambda a: a[0], torch.zeros(1, 2), torch.zeros(1, 2), k=0), "at least one dimension"),
    ):
        with pytest.raises(ValueError, match=expected):
            call()
