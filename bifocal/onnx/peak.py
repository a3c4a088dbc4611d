"""Place of a phrase in an image: the size of its heatmap, and the point where it is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 96
"""Pixels along each side of a heatmap, over the image stretched to a square."""


def peak(heatmap: NDArray[Any]) -> tuple[float, float]:
    """Return the highest value's position as fractions of the width and height; ties: nearest their center."""
    rows, columns = np.nonzero(heatmap == heatmap.max())
    nearest = np.argmin((rows - rows.mean()) ** 2 + (columns - columns.mean()) ** 2)
    return (float(columns[nearest]) + 0.5) / heatmap.shape[1], (float(rows[nearest]) + 0.5) / heatmap.shape[0]
