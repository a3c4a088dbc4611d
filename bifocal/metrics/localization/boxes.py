"""Overlap of boxes, and non-maximum suppression."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def box_iou(first: Floats, second: Floats) -> NDArray[np.float64]:
    """Intersection over union of boxes x0 y0 x1 y1; a box without area overlaps nothing.

    Shape:
        first (n, 4), second (m, 4) -> (n, m)
    """
    first, second = first.astype(np.float64), second.astype(np.float64)
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clip(min=0).prod(axis=2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).clip(min=0).prod(axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    iou: NDArray[np.float64] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return iou


def suppress(scores: Floats, boxes: Floats, overlap: float = 0.3) -> NDArray[np.int64]:
    """Non-maximum suppression: the rows that stay, best first; what overlaps a better one by more goes.

    Shape:
        scores (n,), boxes (n, 4) -> (kept,)
    """
    # Among equal scores the order of the rows must not decide: by the boxes themselves.
    order = np.lexsort((*boxes.T[::-1], -scores))
    kept: list[int] = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(int(best))
        order = order[box_iou(boxes[best : best + 1], boxes[order])[0] <= overlap]
    return np.array(kept, dtype=np.int64)
