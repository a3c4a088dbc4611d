"""Cells of images or of their central crops, with boxes relative to the whole image."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from bifocal.backbones.preprocessing import map_by_shape
from bifocal.features.base import ImageRegions
from bifocal.onnx.resizing import center_box


class CellExtractor:
    """Extractor of the cells of the image that the network ``backbone`` sees."""

    backbone: Any

    @property
    def crop_side(self) -> int | None:
        """Side of the central square that the network sees, pixels; None if it sees the whole image."""
        return self.backbone.size if self.backbone.resize == "crop" else None

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """Return the cells of each image, in the order of ``cells``."""
        return extract_cells(images, self.cells, self.crop_side)

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (B, 3, H, W) uint8 to features (B, R, D) and boxes (R, 4) of their cells."""
        raise NotImplementedError


def extract_cells(
    images: Sequence[Tensor], cells: Callable[[Tensor], tuple[Tensor, Tensor]], crop: int | None = None
) -> list[ImageRegions]:
    """Return each image's (3, H, W) cells, row by row; with ``crop``, cells of its central square.

    ``cells`` maps images (B, 3, h, w) of one shape to features (B, R, D) and boxes (R, 4).
    """

    def regions(pixels: Tensor) -> list[ImageRegions]:
        features, boxes = cells(pixels)
        return [ImageRegions(vectors, boxes) for vectors in features]

    if crop is None:
        return map_by_shape(images, regions)
    squares = [center_box(image.shape[2], image.shape[1], crop) for image in images]
    cropped = [image[:, y0:y1, x0:x1] for image, (x0, y0, x1, y1) in zip(images, squares, strict=True)]
    return [
        found._replace(boxes=_in_image(found.boxes, square, image))
        for found, square, image in zip(map_by_shape(cropped, regions), squares, images, strict=True)
    ]


def _in_image(boxes: Tensor | None, square: tuple[int, int, int, int], image: Tensor) -> Tensor | None:
    if boxes is None:
        return None
    x0, y0, x1, y1 = square
    sides = boxes.new_tensor([image.shape[2], image.shape[1]] * 2)
    return (boxes * boxes.new_tensor([x1 - x0, y1 - y0] * 2) + boxes.new_tensor([x0, y0] * 2)) / sides
