"""mAP of points and masks in a worked case."""

import numpy as np
import pytest
import torch

from bifocal.metrics import mask_iou, mask_mean_ap, mask_mean_ap_of_overlaps, point_mean_ap


def test_point_and_mask_mean_ap_of_worked_case() -> None:
    """One category in five images; 0, 1 and 2 have it. Maxima: image 0 on it, 1 elsewhere, 2 within
    18 pixels. By score 0, 3 (without it), 2, 1, 4: hits at ranks 1 and 3: (1 + 2/3) / 3 objects'
    images = 0.5556."""
    box, none = np.array([[10.0, 10, 20, 20]]), np.empty((0, 4))
    points = np.array([[[15.0, 15], [90, 90], [38, 15], [15, 15], [15, 15]]])
    scores = np.array([[5.0, 2.0, 3.0, 4.0, 1.0]])
    boxes = [[box, box, box, none, none]]
    assert point_mean_ap(scores, points, boxes) == pytest.approx((1 + 2 / 3) / 3)
    assert point_mean_ap(scores, points, boxes, tolerance=0.0) == pytest.approx(1 / 3)
    overlaps, present = (
        np.array([[0.6, 0.35, 0.45, 0.0, 0.0]]),
        np.array([[True, True, True, False, False]]),
    )
    values = mask_mean_ap(scores, overlaps, present)
    assert values == pytest.approx(
        {"IoU@0.3": (1 + 2 / 3 + 3 / 4) / 3, "IoU@0.4": (1 + 2 / 3) / 3, "IoU@0.5": 1 / 3}
    )
    heatmap = torch.tensor([[0.0, 1.0], [0.6, 0.4]])
    assert mask_iou(heatmap, torch.tensor([[False, True], [False, False]])) == 0.5


def test_invalid_input_is_rejected() -> None:
    nan = np.array([[np.nan]])
    for call, expected in (
        (
            lambda: mask_iou(torch.full((2, 2), torch.nan), torch.ones(2, 2).bool()),
            "one shape and no NaN",
        ),
        (
            lambda: point_mean_ap(nan, np.zeros((1, 1, 2)), [[np.array([[0.0, 0, 1, 1]])]]),
            "1 of 1 scores are NaN",
        ),
    ):
        with pytest.raises(ValueError, match=expected):
            call()


def published_map(
    overlaps: list[list[float]], present: list[list[bool]], threshold: float
) -> float:
    """``get_map_at`` of BEAN's published code, in loops: images by decreasing overlap, counted from
    the second."""
    values = []
    for row, has in zip(overlaps, present, strict=True):
        ranked = sorted(zip(row, has, strict=True), key=lambda pair: -pair[0])
        correct = [float(overlap > threshold) for overlap, _ in ranked]
        average = recall = right = wrong = 0.0
        for index, hit in enumerate(correct):
            if index > 0:
                right, wrong = right + hit, wrong + 1 - hit
            precision = right / (right + wrong) if index > 0 else 0.0
            average += precision * (right / sum(has) - recall)
            recall = right / sum(has)
        values.append(average)
    return sum(values) / len(values)


def test_mean_ap_of_overlaps_is_that_of_the_published_code() -> None:
    random = np.random.default_rng(0)
    present = random.random((6, 40)) < 0.3
    present[:, 0] = True
    overlaps = np.where(present, random.random((6, 40)), 0.0)
    for threshold in (0.3, 0.5, 0.99):
        expected = published_map(overlaps.tolist(), present.tolist(), threshold)
        assert mask_mean_ap_of_overlaps(overlaps, present, [threshold])[
            f"IoU@{threshold:g}"
        ] == pytest.approx(expected)
    absent = np.zeros((1, 40), dtype=bool)  # a category of no image has no AP
    both = mask_mean_ap_of_overlaps(
        np.vstack([overlaps, 0 * overlaps[:1]]), np.vstack([present, absent])
    )
    assert both == mask_mean_ap_of_overlaps(overlaps, present)
