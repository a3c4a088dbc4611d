"""Boxes of ground truth, and hits of points in them."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Boxes = NDArray[np.floating]
"""(n, 4), x0 y0 x1 y1 in pixels; a phrase for several objects has several boxes."""


def box_iou(first: Floats, second: Floats) -> NDArray[np.float64]:
    """Return the intersection over union of boxes x0 y0 x1 y1; 0 for a box without area.

    Shape:
        first (n, 4), second (m, 4) -> (n, m)

    Example:
        >>> box_iou(np.array([[0.0, 0, 2, 2]]), np.array([[0.0, 0, 2, 1]])).tolist()
        [[0.5]]
    """
    first, second = first.astype(np.float64), second.astype(np.float64)
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clip(min=0).prod(axis=2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).clip(min=0).prod(axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    iou: NDArray[np.float64] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return iou


def nms(scores: Floats, boxes: Floats, overlap: float = 0.3) -> NDArray[np.int64]:
    """Return the rows that non-maximum suppression keeps, best first.

    Args:
        overlap: IoU with a better box above which a box is removed.

    Shape:
        scores (n,), boxes (n, 4) -> (kept,)
    """
    # Order equal scores by their boxes, so that the order of the rows does not matter.
    order = np.lexsort((*boxes.T[::-1], -scores))
    kept: list[int] = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(int(best))
        order = order[box_iou(boxes[best : best + 1], boxes[order])[0] <= overlap]
    return np.array(kept, dtype=np.int64)


def pointing_hits(
    points: NDArray[np.floating], boxes: Sequence[Boxes], edges: bool = True
) -> NDArray[np.bool_]:
    """Return, for each point, whether a box of its phrase contains it.

    Args:
        points: x y in pixels of the boxes' image.
        edges: whether a box contains its edges.

    Shape:
        points (N, 2) -> (N,)

    Raises:
        ValueError: a point is not finite, a phrase has no box, or a box has no area.
    """
    if len(points) != len(boxes):
        raise ValueError(
            f"{len(points)} points and {len(boxes)} phrases with boxes: expected one point for each"
        )
    if not np.isfinite(points).all():
        raise ValueError(
            f"{int((~np.isfinite(points).all(axis=1)).sum())} of {len(points)} points are not "
            "finite"
        )
    check_boxes(boxes)
    below = np.less_equal if edges else np.less
    return np.array(
        [
            bool((below(truth[:, :2], point) & below(point, truth[:, 2:])).all(axis=1).any())
            for point, truth in zip(points, boxes, strict=True)
        ],
        dtype=bool,
    )


def center_baseline(sizes: NDArray[np.floating], boxes: Sequence[Boxes]) -> NDArray[np.bool_]:
    """Return the hits of the baseline that always predicts the center of the image.

    Args:
        sizes: width and height of each phrase's image, in pixels.

    Shape:
        sizes (N, 2) -> (N,)
    """
    return pointing_hits(np.asarray(sizes, dtype=np.float64) / 2, boxes)


def random_baseline(sizes: NDArray[np.floating], boxes: Sequence[Boxes]) -> NDArray[np.float64]:
    """Return the hit probability of a random point: the share of the image that the phrase's boxes
    cover.

    Args:
        sizes: width and height of each phrase's image, in pixels.

    Shape:
        sizes (N, 2) -> (N,), in [0, 1]

    Raises:
        ValueError: a box lies outside its image.
    """
    check_boxes(boxes)
    probabilities = np.empty(len(boxes))
    for number, (size, truth) in enumerate(zip(np.asarray(sizes), boxes, strict=True)):
        if (truth[:, :2] < 0).any() or (truth[:, 2:] > size).any():
            raise ValueError(
                f"phrase {number} has a box outside its image of {size[0]:g} x {size[1]:g}: clip it"
            )
        probabilities[number] = _union_area(truth.astype(np.float64)) / float(size[0] * size[1])
    return probabilities


def accuracy_by(
    hits: NDArray[np.bool_] | NDArray[np.float64], groups: Sequence[Hashable]
) -> dict[Hashable, float]:
    """Return the accuracy in percent by group, such as a category; groups are in the order of their
    first entry."""
    members: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    return {group: 100 * float(np.mean(hits[rows])) for group, rows in members.items()}


def check_boxes(boxes: Sequence[Boxes]) -> None:
    """Raise ``ValueError`` if a phrase has no box, or a malformed box."""
    for number, truth in enumerate(boxes):
        if truth.ndim != 2 or truth.shape[1] != 4 or not len(truth):
            raise ValueError(
                f"phrase {number} has boxes of shape {truth.shape}: expected (n, 4), n at least 1"
            )
        if not (truth[:, :2] < truth[:, 2:]).all():
            raise ValueError(
                f"phrase {number} has a box without area, or not finite: {truth.tolist()}"
            )


def _union_area(boxes: NDArray[np.float64]) -> float:
    """Return the area of the boxes' union, summed over the grid cells between their edges."""
    x, y = np.unique(boxes[:, [0, 2]]), np.unique(boxes[:, [1, 3]])
    across = (boxes[:, 0:1] <= x[:-1]) & (x[1:] <= boxes[:, 2:3])
    down = (boxes[:, 1:2] <= y[:-1]) & (y[1:] <= boxes[:, 3:4])
    covered = (down[:, :, None] & across[:, None, :]).any(axis=0)
    return float((covered * np.diff(y)[:, None] * np.diff(x)[None, :]).sum())
