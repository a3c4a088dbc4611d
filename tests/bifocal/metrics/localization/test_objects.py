"""mAP of points and masks in a worked case."""

import numpy as np
import pytest
import torch

from bifocal.metrics import mask_iou, mask_mean_ap, point_mean_ap


def test_point_and_mask_mean_ap_of_worked_case() -> None:
    """One category in five images; 0, 1 and 2 have it. Maxima: image 0 on it, 1 elsewhere, 2 within 18 pixels.
    By score 0, 3 (without it), 2, 1, 4: hits at ranks 1 and 3: (1 + 2/3) / 3 objects' images = 0.5556."""
    box, none = np.array([[10.0, 10, 20, 20]]), np.empty((0, 4))
    points = np.array([[[15.0, 15], [90, 90], [38, 15], [15, 15], [15, 15]]])
    scores = np.array([[5.0, 2.0, 3.0, 4.0, 1.0]])
    boxes = [[box, box, box, none, none]]
    assert point_mean_ap(scores, points, boxes) == pytest.approx((1 + 2 / 3) / 3)
    assert point_mean_ap(scores, points, boxes, tolerance=0.0) == pytest.approx(1 / 3)
    overlaps, present = np.array([[0.6, 0.35, 0.45, 0.0, 0.0]]), np.array([[True, True, True, False, False]])
    values = mask_mean_ap(scores, overlaps, present)
    assert values == pytest.approx({"IoU@0.3": (1 + 2 / 3 + 3 / 4) / 3, "IoU@0.4": (1 + 2 / 3) / 3, "IoU@0.5": 1 / 3})
    heatmap = torch.tensor([[0.0, 1.0], [0.6, 0.4]])
    assert mask_iou(heatmap, torch.tensor([[False, True], [False, False]])) == 0.5


def test_invalid_input_is_rejected() -> None:
    nan = np.array([[np.nan]])
    for call, expected in (
        (lambda: mask_iou(torch.full((2, 2), torch.nan), torch.ones(2, 2).bool()), "one shape and no NaN"),
        (lambda: point_mean_ap(nan, np.zeros((1, 1, 2)), [[np.array([[0.0, 0, 1, 1]])]]), "1 of 1 scores are NaN"),
    ):
        with pytest.raises(ValueError, match=expected):
            call()
