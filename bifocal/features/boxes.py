"""Boxes of feature maps, crops and phrases, x0 y0 x1 y1 relative to the image's width and
height."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bifocal.backbones.base import map_by_shape
from bifocal.datasets import Dataset
from bifocal.features.base import ImageRegions
from bifocal.onnx.pixels import center_box
from bifocal.progress import log_line


def cell_boxes(rows: int, columns: int) -> Tensor:
    """Return the boxes (rows * columns, 4) of the cells of a feature map, row by row."""
    top, left = torch.meshgrid(
        torch.arange(rows) / rows, torch.arange(columns) / columns, indexing="ij"
    )
    boxes = torch.stack([left, top, left + 1 / columns, top + 1 / rows], dim=-1)
    return boxes.reshape(-1, 4).clamp(max=1)


def cells_of(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return maps (B, D, h, w) as the features (B, h w, D) and the boxes (h w, 4) of their cells,
    row by row."""
    return maps.flatten(2).transpose(1, 2), cell_boxes(*maps.shape[2:]).to(maps.device)


def mirrored(boxes: Tensor) -> Tensor:
    """Return the boxes (n, 4) of the same places in the mirrored image."""
    left, top, right, bottom = boxes.unbind(dim=1)
    return torch.stack([1 - right, top, 1 - left, bottom], dim=1)


def coordinates(boxes: Tensor) -> Tensor:
    """Return boxes (n, 4) as features (n, 7): x0 y0 x1 y1, width, height, area (Hu et al., CVPR
    2016)."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return torch.cat([boxes, sides, sides.prod(dim=1, keepdim=True)], dim=1)


def relative_boxes(boxes: ArrayLike, width: float, height: float) -> NDArray[np.float32]:
    """Return boxes (n, 4) in pixels as float32 relative to the image's width and height, clipped to
    [0, 1]."""
    pixels = np.asarray(boxes, np.float64).reshape(-1, 4)
    relative: NDArray[np.float32] = (
        (pixels / (width, height, width, height)).clip(0, 1).astype(np.float32)
    )
    return relative


def image_sizes(dataset: Dataset) -> dict[str, tuple[float, float]]:
    """Return width and height of each image in pixels."""
    columns = (dataset.images[name].tolist() for name in ("image_id", "width", "height"))
    return {
        str(image_id): (float(width), float(height))
        for image_id, width, height in zip(*columns, strict=True)
    }


def training_boxes(dataset: Dataset, maximum: int) -> dict[str, Tensor]:
    """Return the distinct boxes (t, 4), relative, of each training image's phrases; at most
    ``maximum`` per image."""
    train = dataset.split("train")
    sizes = image_sizes(train)
    boxes: dict[str, dict[tuple[float, ...], None]] = {image_id: {} for image_id in sizes}
    for image_id, given in zip(train.phrases["image_id"], train.phrases["boxes"], strict=True):
        boxes[image_id] |= dict.fromkeys(
            map(tuple, relative_boxes(given, *sizes[image_id]).tolist())
        )
    dropped = sum(max(len(rows) - maximum, 0) for rows in boxes.values())
    if dropped:
        total = sum(map(len, boxes.values()))
        log_line(
            f"{dropped} of {total} ground-truth boxes get no features: an image has more than "
            f"{maximum}"
        )
    return {
        image_id: torch.tensor(list(rows)[:maximum]).view(-1, 4) for image_id, rows in boxes.items()
    }


class CellExtractor(ABC):
    """Extractor of the cells of the image that the network ``backbone`` sees."""

    backbone: Any

    @property
    def crop_side(self) -> int | None:
        """Side of the central square that the network sees, pixels; None if it sees the whole
        image."""
        return self.backbone.size if self.backbone.resize == "crop" else None

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """Return the cells of each image, in the order of ``cells``."""
        return extract_cells(images, self.cells, self.crop_side)

    @abstractmethod
    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (B, 3, H, W) uint8 to features (B, R, D) and boxes (R, 4) of their cells."""


def extract_cells(
    images: Sequence[Tensor],
    cells: Callable[[Tensor], tuple[Tensor, Tensor]],
    crop: int | None = None,
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
    cropped = [
        image[:, y0:y1, x0:x1] for image, (x0, y0, x1, y1) in zip(images, squares, strict=True)
    ]
    return [
        found._replace(boxes=_in_image(found.boxes, square, image))
        for found, square, image in zip(
            map_by_shape(cropped, regions), squares, images, strict=True
        )
    ]


def _in_image(
    boxes: Tensor | None, square: tuple[int, int, int, int], image: Tensor
) -> Tensor | None:
    if boxes is None:
        return None
    x0, y0, x1, y1 = square
    sides = boxes.new_tensor([image.shape[2], image.shape[1]] * 2)
    return (
        boxes * boxes.new_tensor([x1 - x0, y1 - y0] * 2) + boxes.new_tensor([x0, y0] * 2)
    ) / sides
