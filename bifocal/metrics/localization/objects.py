"""Localization of categories by heatmaps, mAP of points (Oquab et al., CVPR 2015) and masks (BEAN,
section 4.2)."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.metrics.localization.pointing import Floats
from bifocal.metrics.ranking.average_precision import mean_average_precision

TOLERANCE = 18.0
"""Pixels that a correct point may lie outside its box, as in Oquab et al."""


def point_mean_ap(
    scores: Floats, points: Floats, boxes: Sequence[Sequence[Floats]], tolerance: float = TOLERANCE
) -> float:
    """Return the mAP of points: all images are ranked for every category by the maximum of their
    heatmap.

    An image is correct if it has the category and its maximum lies in one of the boxes, or within
    ``tolerance`` pixels of it.

    Args:
        scores: maximum of each heatmap.
        points: position of the maximum, x y in pixels.
        boxes: by category (outer) and image (inner), (n, 4); n is 0 where the image lacks the
            category.

    Shape:
        scores (C categories, N images), points (C, N, 2)

    Returns:
        mean over the categories that an image has, in [0, 1]; a category whose objects are never
        hit has 0.
    """
    hit = np.zeros(scores.shape, dtype=bool)
    present = np.array([[len(truth) > 0 for truth in row] for row in boxes], dtype=bool)
    for category, image in np.argwhere(present):
        point, truth = points[category, image], boxes[category][image]
        near = (truth[:, :2] - tolerance <= point) & (point <= truth[:, 2:] + tolerance)
        hit[category, image] = bool(near.all(axis=1).any())
    return _mean_over_present(scores, hit, present)


def mask_mean_ap(
    scores: Floats,
    overlaps: Floats,
    present: NDArray[np.bool_],
    thresholds: Iterable[float] = (0.3, 0.4, 0.5),
) -> dict[str, float]:
    """Return the mAP of masks at several overlaps; candidates and ranking as in ``point_mean_ap``.

    Args:
        overlaps: IoU of each heatmap's mask with the true mask, see ``mask_iou``; 0 if there is no
            true mask.
        present: whether the image has the category.

    Shape:
        scores, overlaps, present (C categories, N images)

    Returns:
        ``{"IoU@0.3": ..., ...}``, each in [0, 1].
    """
    return {
        f"IoU@{minimum:g}": _mean_over_present(scores, (overlaps >= minimum) & present, present)
        for minimum in thresholds
    }


def mask_mean_ap_of_overlaps(
    overlaps: Floats, present: NDArray[np.bool_], thresholds: Iterable[float] = (0.3, 0.4, 0.5)
) -> dict[str, float]:
    """Return the mAP of masks by the protocol of BEAN's published code (``get_map_at`` in
    misc/localization.py).

    The code ranks images by the overlap itself, and not by a score: each image above the threshold
    is correct and ahead of all others, so the mAP is nearly the share of pairs of category and
    image whose overlap is above it. The code starts to count at the second image. Not comparable
    with ``mask_mean_ap``, where a model also has to rank images.

    Shape:
        overlaps, present (C categories, N images); ``mask_mean_ap`` describes both

    Returns:
        ``{"IoU@0.3": ..., ...}``, each in [0, 1].
    """
    shown = present.any(axis=1)
    counts = present[shown].sum(axis=1)
    return {
        f"IoU@{minimum:g}": float(
            np.mean(np.maximum((overlaps[shown] > minimum).sum(axis=1) - 1, 0) / counts)
        )
        for minimum in thresholds
    }


def mask_iou(heatmap: Tensor, truth: Tensor, threshold: float = 0.5) -> float:
    """Return the IoU of a true mask with the mask of a heatmap.

    Args:
        heatmap: is scaled to [0, 1]; its mask is where it is at least ``threshold``, everywhere if
            it is constant.
        threshold: to be tuned on validation images.

    Shape:
        heatmap (h, w), truth (h, w) bool

    Raises:
        ValueError: the shapes differ, or a value is NaN.
    """
    if heatmap.shape != truth.shape or heatmap.isnan().any():
        raise ValueError(
            f"heatmap {tuple(heatmap.shape)} and mask {tuple(truth.shape)}: expected one shape "
            "and no NaN"
        )
    low, high = heatmap.min(), heatmap.max()
    mask = (heatmap - low) >= threshold * (high - low)
    union = int((mask | truth).sum())
    return int((mask & truth).sum()) / union if union else 0.0


def _mean_over_present(
    scores: Floats, correct: NDArray[np.bool_], present: NDArray[np.bool_]
) -> float:
    """Return the mean AP over the categories that an image has; images that are missed count as not
    retrieved."""
    if np.isnan(scores).any():
        raise ValueError(f"{int(np.isnan(scores).sum())} of {scores.size} scores are NaN")
    values = []
    for row, hits, has in zip(scores, correct, present, strict=True):
        if has.any():
            recall = hits.sum() / has.sum()
            ranked = mean_average_precision(
                torch.from_numpy(row)[None].double(), torch.from_numpy(hits)[None]
            )
            values.append(ranked * recall if hits.any() else 0.0)
    return float(np.mean(values)) if values else float("nan")
