"""The pointing game: does the point that a text gives lie in its box?

Xiao, Sigal and Lee, "Weakly-supervised visual grounding of phrases with linguistic structures", CVPR 2017; BEAN, table
3; Engilberge's thesis, section 4.3.1; Akbari et al., CVPR 2019, table 2. The accuracy is #hit / (#hit + #miss), each
phrase counting once.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.floating]
"""(n, 4), x0 y0 x1 y1 in pixels; a phrase has several where it names several things."""


def pointing_hits(points: NDArray[np.floating], boxes: Sequence[Boxes]) -> NDArray[np.bool_]:
    """Whether each point lies in one of its phrase's boxes, the edges included.

    Args:
        points: x y in pixels of the image that the boxes are of.

    Shape:
        points (N, 2) -> (N,)

    Raises:
        ValueError: a point is not finite, a phrase has no box, or a box has no area.
    """
    if len(points) != len(boxes):
        raise ValueError(f"{len(points)} points and {len(boxes)} phrases with boxes: expected one point for each")
    if not np.isfinite(points).all():
        raise ValueError(f"{int((~np.isfinite(points).all(axis=1)).sum())} of {len(points)} points are not finite")
    check_boxes(boxes)
    return np.array(
        [
            bool(((truth[:, :2] <= point) & (point <= truth[:, 2:])).all(axis=1).any())
            for point, truth in zip(points, boxes, strict=True)
        ],
        dtype=bool,
    )


def center_baseline(sizes: NDArray[np.floating], boxes: Sequence[Boxes]) -> NDArray[np.bool_]:
    """The baseline that always points at the centre of the image.

    Args:
        sizes: width and height of each phrase's image, in pixels.

    Shape:
        sizes (N, 2) -> (N,)
    """
    return pointing_hits(np.asarray(sizes, dtype=np.float64) / 2, boxes)


def random_baseline(sizes: NDArray[np.floating], boxes: Sequence[Boxes]) -> NDArray[np.float64]:
    """The baseline that points anywhere: the share of the image that the phrase's boxes cover together.

    Shape:
        sizes (N, 2) -> (N,), in [0, 1]

    Raises:
        ValueError: a box lies outside its image.
    """
    check_boxes(boxes)
    chances = np.empty(len(boxes))
    for number, (size, truth) in enumerate(zip(np.asarray(sizes), boxes, strict=True)):
        if (truth[:, :2] < 0).any() or (truth[:, 2:] > size).any():
            raise ValueError(f"phrase {number} has a box outside its image of {size[0]:g} x {size[1]:g}: clip it")
        chances[number] = _union(truth.astype(np.float64)) / float(size[0] * size[1])
    return chances


def accuracy_by(hits: NDArray[np.bool_] | NDArray[np.float64], groups: Sequence[Hashable]) -> dict[Hashable, float]:
    """Accuracy in percent of each group: a category, a dataset, a phrase. In the groups' first order."""
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    return {group: 100 * float(np.mean(hits[places])) for group, places in members.items()}


def check_boxes(boxes: Sequence[Boxes]) -> None:
    """Raise ``ValueError`` if a phrase has no box, or a box that is no box."""
    for number, truth in enumerate(boxes):
        if truth.ndim != 2 or truth.shape[1] != 4 or not len(truth):
            raise ValueError(f"phrase {number} has boxes of shape {truth.shape}: expected (n, 4), n at least 1")
        if not (truth[:, :2] < truth[:, 2:]).all():
            raise ValueError(f"phrase {number} has a box without area, or not finite: {truth.tolist()}")


def _union(boxes: NDArray[np.float64]) -> float:
    """Area that the boxes cover together, over the cells of the grid that their edges make."""
    x, y = np.unique(boxes[:, [0, 2]]), np.unique(boxes[:, [1, 3]])
    across = (boxes[:, 0:1] <= x[:-1]) & (x[1:] <= boxes[:, 2:3])
    down = (boxes[:, 1:2] <= y[:-1]) & (y[1:] <= boxes[:, 3:4])
    covered = (down[:, :, None] & across[:, None, :]).any(axis=0)
    return float((covered * np.diff(y)[:, None] * np.diff(x)[None, :]).sum())
