"""Objects of known categories found by heatmaps: by a point, and by a mask.

Oquab et al., "Is object localization for free?", CVPR 2015 (points); Xiao et al., CVPR 2017, and BEAN, section 4.2
(masks at IoU 0.3, 0.4 and 0.5).
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.metrics.localization.boxes import Floats
from bifocal.metrics.ranking.average_precision import mean_average_precision

TOLERANCE = 18.0
"""Pixels that a point may lie outside its box, as Oquab et al. allow."""


def point_mean_ap(
    scores: Floats, points: Floats, boxes: Sequence[Sequence[Floats]], tolerance: float = TOLERANCE
) -> float:
    """mAP of point-wise localization: every image is a candidate of every category, ranked by its heatmap's peak.

    It is correct if the image has the category and the peak lies in one of its boxes, or not farther from it than
    ``tolerance``; a peak elsewhere, or in an image without the category, is not.

    Args:
        scores: the height of each heatmap's peak.
        points: where it is, x y in pixels.
        boxes: of each category (outer) and image (inner), (n, 4), n being 0 where the image has none.

    Shape:
        scores (C categories, N images), points (C, N, 2)

    Returns:
        The mean over the categories that an image has, in [0, 1]; one whose objects are never hit has 0.
    """
    hit = np.zeros(scores.shape, dtype=bool)
    present = np.array([[len(truth) > 0 for truth in row] for row in boxes], dtype=bool)
    for category, image in np.argwhere(present):
        point, truth = points[category, image], boxes[category][image]
        near = (truth[:, :2] - tolerance <= point) & (point <= truth[:, 2:] + tolerance)
        hit[category, image] = bool(near.all(axis=1).any())
    return _mean_over_present(scores, hit, present)


def mask_mean_ap(
    scores: Floats, overlaps: Floats, present: NDArray[np.bool_], thresholds: Iterable[float] = (0.3, 0.4, 0.5)
) -> dict[str, float]:
    """mAP of segmentation at several overlaps; candidates and ranking as in ``point_mean_ap``.

    Args:
        overlaps: IoU of each heatmap's mask, see ``mask_iou``, with the true one; 0 where there is none.
        present: whether the image has the category.

    Shape:
        scores, overlaps, present (C categories, N images)

    Returns:
        ``{"IoU@0.3": ..., ...}``, each in [0, 1].
    """
    return {
        f"IoU@{least:g}": _mean_over_present(scores, (overlaps >= least) & present, present) for least in thresholds
    }


def mask_iou(heatmap: Tensor, truth: Tensor, level: float = 0.5) -> float:
    """IoU of a true mask with where a heatmap, scaled to [0, 1], is at least ``level``; a flat one covers all.

    Args:
        level: to be chosen on validation images.

    Shape:
        heatmap (h, w), truth (h, w) bool

    Raises:
        ValueError: the shapes differ, or a number is NaN.
    """
    if heatmap.shape != truth.shape or heatmap.isnan().any():
        raise ValueError(f"heatmap {tuple(heatmap.shape)} and mask {tuple(truth.shape)}: expected one shape and no NaN")
    low, high = heatmap.min(), heatmap.max()
    mask = (heatmap - low) >= level * (high - low)
    union = int((mask | truth).sum())
    return int((mask & truth).sum()) / union if union else 0.0


def _mean_over_present(scores: Floats, correct: NDArray[np.bool_], present: NDArray[np.bool_]) -> float:
    """AP of each category over all objects that it has: one that is never hit has 0, not nothing."""
    if np.isnan(scores).any():
        raise ValueError(f"{int(np.isnan(scores).sum())} of {scores.size} scores are NaN")
    values = []
    for row, hits, has in zip(scores, correct, present, strict=True):
        if has.any():
            reached = hits.sum() / has.sum()
            ranked = mean_average_precision(torch.from_numpy(row)[None].double(), torch.from_numpy(hits)[None])
            values.append(ranked * reached if hits.any() else 0.0)
    return float(np.mean(values)) if values else float("nan")
