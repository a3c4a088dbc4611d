"""Overlap of boxes against counted pixels, suppression against a greedy loop."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bifocal.metrics import box_iou, nms


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
