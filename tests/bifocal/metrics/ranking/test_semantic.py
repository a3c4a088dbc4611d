"""Semantic retrieval, objects and VOC's average precision: worked cases and slow references."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.metrics import (
    area_under,
    choose_queries,
    mask_iou,
    mask_mean_ap,
    match_kernel,
    modifier_precision,
    point_mean_ap,
    semantic_curves,
    triplet_agreement,
    voc_average_precision,
)


def test_five_images_ranked_by_meaning() -> None:
    """By hand, one query, image 0, and R = 2.

    Scores of images 1 to 4: 0.9, 0.8, 0.1, 0.0; relevances 1, 3, 2, 0. DCG@2 = 1 / log2(2) + 3 / log2(3) = 2.8928; the
    best, 3 then 2: 3 + 2 / log2(3) = 4.2619. NDCG@2 = 0.6788. PCC@2 of (0.9, 0.8) and (1, 3) is -1.
    """
    scores, relevance = torch.tensor([[9.0, 0.9, 0.8, 0.1, 0.0]]), torch.tensor([[9.0, 1.0, 3.0, 2.0, 0.0]])
    ndcg, pcc = semantic_curves(scores, relevance, torch.tensor([0]), [2])
    assert ndcg[2] == pytest.approx((1 + 3 / math.log2(3)) / (3 + 2 / math.log2(3)))
    assert ndcg[2] == pytest.approx(0.6788, abs=1e-4)
    assert pcc[2] == pytest.approx(-1.0)


def slow_curves(scores: np.ndarray, relevance: np.ndarray, queries: list[int], r: int) -> tuple[float, float]:
    ndcgs, pccs = [], []
    for row, query in enumerate(queries):
        others = [image for image in range(scores.shape[1]) if image != query]
        top = sorted(others, key=lambda image: -scores[row, image])[:r]
        best = sorted((relevance[row, image] for image in others), reverse=True)[:r]
        gains = [relevance[row, image] for image in top]
        dcg, ideal = (sum(gain / math.log2(place + 2) for place, gain in enumerate(list_)) for list_ in (gains, best))
        ndcgs.append(dcg / ideal)
        pccs.append(np.corrcoef([scores[row, image] for image in top], gains)[0, 1])
    return float(np.mean(ndcgs)), float(np.mean(pccs))


@given(seed=st.integers(0, 2**32 - 1), shift=st.floats(-3, 3))
def test_curves_are_loops_and_see_neither_order_nor_shift(seed: int, shift: float) -> None:
    random = np.random.default_rng(seed)
    scores, relevance = random.normal(size=(3, 8)), random.random((3, 8))
    queries = [1, 4, 6]
    found = semantic_curves(torch.tensor(scores), torch.tensor(relevance), torch.tensor(queries), [3, 5])
    for r in (3, 5):
        expected = slow_curves(scores, relevance, queries, r)
        assert (found[0][r], found[1][r]) == pytest.approx(expected)
    order = random.permutation(8)
    moved = torch.tensor([int(np.flatnonzero(order == query)[0]) for query in queries])
    again = semantic_curves(torch.tensor(scores[:, order] + shift), torch.tensor(relevance[:, order]), moved, [3, 5])
    assert again[0] == pytest.approx(found[0])
    assert again[1] == pytest.approx(found[1], abs=1e-6)


def test_equal_scores_are_between_the_best_and_the_worst_order() -> None:
    ndcg, pcc = semantic_curves(torch.zeros(1, 3), torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([0]), [1])
    assert (ndcg[1], pcc[1]) == (0.5, 0.0)
    with pytest.raises(ValueError, match="3 images, less the query, give 1 to 2 results"):
        semantic_curves(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0]), [3])
    with pytest.raises(ValueError, match="is NaN"):
        semantic_curves(torch.full((1, 3), torch.nan), torch.zeros(1, 3), torch.tensor([0]), [1])


def test_areas_queries_and_kernels() -> None:
    assert area_under({1: 0.0, 3: 1.0, 5: 1.0}) == pytest.approx(0.75)
    queries = choose_queries(50, seed=0, count=7)
    assert len(set(queries.tolist())) == 7
    assert torch.equal(queries, choose_queries(50, seed=0, count=7))
    # (max of rows 0.9, 0.2; max of columns 0.9, 0.3, 0.1) / (2 + 3)
    assert match_kernel(torch.tensor([[0.9, 0.3, 0.0], [0.2, 0.0, 0.1]])) == pytest.approx(2.4 / 5)


def test_agreement_with_five_triplets_by_hand() -> None:
    """o1 o2 o3 and the choice: 4 1 0, first: 4/5. 1 3 1, first: 1/5. 0 0 5: nobody chose. 2 0 2, second: 0/4.
    1 1 0, tied: 1/2. The mean of four: (0.8 + 0.2 + 0 + 0.5) / 4 = 37.5 %."""
    votes = torch.tensor([[4, 1, 0], [1, 3, 1], [0, 0, 5], [2, 0, 2], [1, 1, 0]])
    first, second = torch.tensor([2.0, 2.0, 2.0, 0.0, 1.0]), torch.ones(5)
    assert triplet_agreement(first, second, votes) == pytest.approx(37.5)
    with pytest.raises(ValueError, match="nobody chose"):
        triplet_agreement(first[2:3], second[2:3], votes[2:3])


def test_a_modifier_that_is_the_concept_brings_it() -> None:
    # Two directions: what the scene is, and whether it shows the concept.
    images = torch.nn.functional.normalize(torch.tensor([[1.0, 0], [1, 0.1], [1, 2], [1, 1.9], [0.2, 2]]), dim=1)
    shows = torch.tensor([[False, False, True, True, True]])
    found = modifier_precision(images, torch.tensor([0]), torch.tensor([[0.0, 1.0]]), shows, weight=3.0, r=2)
    assert (found["before"], found["after"], found["chance"]) == (50.0, 100.0, 75.0)
    assert 0 < found["kept"] < 1


def test_points_of_objects_by_hand() -> None:
    """One category in five images, of which 0, 1 and 2 have it. Peaks: image 0 on it, 1 elsewhere, 2 within 18 pixels.
    By score 0, 3 (without it), 2, 1, 4: hits at places 1 and 3: (1 + 2/3) / 3 objects' images = 0.5556."""
    box, none = np.array([[10.0, 10, 20, 20]]), np.empty((0, 4))
    points = np.array([[[15.0, 15], [90, 90], [38, 15], [15, 15], [15, 15]]])
    scores = np.array([[5.0, 2.0, 3.0, 4.0, 1.0]])
    boxes = [[box, box, box, none, none]]
    assert point_mean_ap(scores, points, boxes) == pytest.approx((1 + 2 / 3) / 3)
    assert point_mean_ap(scores, points, boxes, tolerance=0.0) == pytest.approx(1 / 3)
    overlaps, present = np.array([[0.6, 0.35, 0.45, 0.0, 0.0]]), np.array([[True, True, True, False, False]])
    found = mask_mean_ap(scores, overlaps, present)
    assert found == pytest.approx({"IoU@0.3": (1 + 2 / 3 + 3 / 4) / 3, "IoU@0.4": (1 + 2 / 3) / 3, "IoU@0.5": 1 / 3})
    heatmap = torch.tensor([[0.0, 1.0], [0.6, 0.4]])
    assert mask_iou(heatmap, torch.tensor([[False, True], [False, False]])) == 0.5


def test_voc_by_hand_and_by_steps() -> None:
    """Right, wrong, right, wrong: precision 1 up to recall 0.5, 2/3 up to 1. 11 points: (6 * 1 + 5 * 2/3) / 11."""
    scores, matches = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([True, False, True, False])
    assert voc_average_precision(scores, matches, "11 points") == pytest.approx((6 + 10 / 3) / 11)
    assert voc_average_precision(scores, matches, "all points") == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert voc_average_precision(0 * scores, matches, "all points") == pytest.approx(0.5)
    assert math.isnan(voc_average_precision(scores, matches & False, "11 points"))


def test_what_cannot_be_measured_is_refused() -> None:
    images, queries, texts = torch.eye(3), torch.tensor([0]), torch.ones(1, 3)
    shows = torch.zeros(1, 3, dtype=torch.bool)
    nan = np.array([[np.nan]])
    for call, expected in (
        (lambda: modifier_precision(images, queries, texts, shows, r=3), "3 images, less the query, give 1 to 2"),
        (lambda: modifier_precision(images, queries, texts, shows[:, :2]), r"expected \(Q,\), \(Q, d\), \(Q, N\)"),
        (lambda: mask_iou(torch.full((2, 2), torch.nan), torch.ones(2, 2).bool()), "one shape and no NaN"),
        (lambda: point_mean_ap(nan, np.zeros((1, 1, 2)), [[np.array([[0.0, 0, 1, 1]])]]), "1 of 1 scores are NaN"),
        (lambda: triplet_agreement(torch.tensor([torch.nan]), torch.ones(1), torch.ones(1, 3)), "triplet is NaN"),
        (lambda: voc_average_precision(torch.tensor([torch.nan]), torch.ones(1).bool(), "11 points"), "have no rank"),
    ):
        with pytest.raises(ValueError, match=expected):
            call()
