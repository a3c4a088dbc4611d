"""Pointing game and its baselines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.metrics import (
    accuracy_by,
    box_iou,
    center_baseline,
    nms,
    pointing_hits,
    random_baseline,
)

SIZES = np.array([[100, 100]] * 5, dtype=float)
BOXES = [
    np.array(boxes, dtype=float)
    for boxes in (
        [[0, 0, 50, 50]],
        [[40, 40, 60, 60]],
        [[0, 0, 20, 20], [80, 80, 100, 100]],
        [[60, 0, 100, 100]],
        [[0, 0, 100, 100]],
    )
]
POINTS = np.array([[50, 50], [61, 50], [90, 85], [59.9, 20], [3, 99]], dtype=float)


def test_pointing_hits_and_baselines_of_worked_case() -> None:
    """By hand.

    0: (50, 50) is the corner of its box: a hit. 1: 61 is right of 60: a miss. 2: in the second of
    two boxes: a hit.
    3: 59.9 is left of 60: a miss. 4: the box is the image: a hit. Accuracy 3/5.
    Center (50, 50): hits 0 (corner), 1 and 4: 3/5. Random: (0.25 + 0.04 + 2 * 0.04 + 0.4 + 1) / 5 =
    0.354.
    """
    hits = pointing_hits(POINTS, BOXES)
    assert hits.tolist() == [True, False, True, False, True]
    assert center_baseline(SIZES, BOXES).tolist() == [True, True, False, False, True]
    assert random_baseline(SIZES, BOXES).mean() == pytest.approx(0.354)
    assert accuracy_by(hits, ["a", "b", "a", "b", "b"]) == {"a": 100.0, "b": pytest.approx(100 / 3)}


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 4))
def test_random_baseline_equals_hit_rate_of_point_grid(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    corners = np.sort(random.integers(0, 11, size=(count, 2, 2)), axis=1)
    boxes = np.concatenate([corners[:, 0], corners[:, 1] + 1], axis=1).astype(float)
    size = np.array([[12.0, 12.0]])
    cells = [(x + 0.5, y + 0.5) for x in range(12) for y in range(12)]
    expected = np.mean([pointing_hits(np.array([cell]), [boxes])[0] for cell in cells])
    assert random_baseline(size, [boxes])[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("points", "boxes", "expected"),
    [
        ([[1.0, 1.0]], [np.empty((0, 4))], r"phrase 0 has boxes of shape \(0, 4\)"),
        ([[1.0, 1.0]], [np.array([[5.0, 5, 5, 9]])], "phrase 0 has a box without area"),
        ([[1.0, 1.0]], [np.array([[np.nan, 5, 7, 9]])], "without area, or not finite"),
        ([[np.nan, 1.0]], [np.array([[0.0, 0, 5, 9]])], "1 of 1 points are not finite"),
        ([[1.0, 1.0]], [], "1 points and 0 phrases"),
    ],
)
def test_pointing_hits_rejects_invalid_points_and_boxes(
    points: object, boxes: list[np.ndarray], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        pointing_hits(np.array(points), boxes)


def test_random_baseline_rejects_box_outside_image() -> None:
    with pytest.raises(ValueError, match="box outside its image of 100 x 100"):
        random_baseline(SIZES[:1], [np.array([[50.0, 0, 101, 9]])])


def iou_by_pixels(first: np.ndarray, second: np.ndarray) -> float:
    masks = []
    for x0, y0, x1, y1 in (first.astype(int), second.astype(int)):
        mask = np.zeros((12, 12), dtype=bool)
        mask[y0:y1, x0:x1] = True
        masks.append(mask)
    union = (masks[0] | masks[1]).sum()
    return float((masks[0] & masks[1]).sum() / union) if union else 0.0


@given(seed=st.integers(0, 2**32 - 1))
def test_box_iou_equals_pixel_count_and_nms_equals_greedy_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    corners = np.sort(random.integers(0, 12, size=(6, 2, 2)), axis=1)
    boxes, scores = corners.reshape(6, 4).astype(float), random.permutation(6).astype(float)
    expected = [[iou_by_pixels(a, b) for b in boxes] for a in boxes]
    np.testing.assert_allclose(box_iou(boxes, boxes), expected)
    kept: list[int] = []
    for row in sorted(range(6), key=lambda row: -scores[row]):
        if all(expected[row][other] <= 0.3 for other in kept):
            kept.append(row)
    assert nms(scores, boxes, 0.3).tolist() == kept
