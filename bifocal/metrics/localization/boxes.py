"""Overlap of boxes, and non-maximum suppression."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


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
