"""Images with heatmaps, for the page and as files."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bifocal.localization import rasterize
from bifocal.report.pictures import Thumbnails, heatmap_overlay, with_heatmap
from bifocal.report.sections import Picture

SIDE = 96
"""Pixels along each side of a heatmap."""
IMAGE_SIDE = 360
"""Pixels along the longer side of the image below it."""


@dataclass(frozen=True)
class HeatmapExample:
    """Image with a heatmap (h, w), -inf without a score; true boxes (n, 4) and the predicted point
    are percentages."""

    image_id: str
    heatmap: NDArray[np.floating]
    boxes: NDArray[np.float64]
    predicted_point: NDArray[np.float64] | None = None

    def picture(self, thumbnails: Thumbnails) -> Picture:
        """Return the example as a picture of the page."""
        boxes = [(x0, y0, x1 - x0, y1 - y0) for x0, y0, x1, y1 in self.boxes.tolist()]
        point = None
        if self.predicted_point is not None:
            x, y = self.predicted_point.tolist()
            point = (x, y)
        return Picture(
            thumbnails.uri(self.image_id, IMAGE_SIDE), heatmap_overlay(self.heatmap), boxes, point
        )

    def image(self, thumbnails: Thumbnails) -> Image.Image:
        """Return the example as an image."""
        image = thumbnails.open(self.image_id, IMAGE_SIDE)
        image.thumbnail((IMAGE_SIDE, IMAGE_SIDE))
        return with_heatmap(image, self.heatmap, self.boxes, self.predicted_point)


def dense_heatmap(scores: Tensor, boxes: Tensor) -> NDArray[np.floating]:
    """Return the scores (R,) of boxes (R, 4) as an array of pixels (SIDE, SIDE)."""
    heatmap: NDArray[np.floating] = rasterize(
        scores.float().cpu(), boxes.float().cpu(), SIDE, SIDE
    ).numpy()
    return heatmap
