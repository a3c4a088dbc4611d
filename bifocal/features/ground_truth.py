"""Ground-truth boxes of phrases, whose features are stored next to the proposals' features."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.progress import log_line

TRAIN = "train"


def relative_boxes(boxes: ArrayLike, width: float, height: float) -> NDArray[np.float32]:
    """Return boxes (n, 4) in pixels as float32 relative to the image's width and height, clipped to [0, 1]."""
    pixels = np.asarray(boxes, np.float64).reshape(-1, 4)
    relative: NDArray[np.float32] = (pixels / (width, height, width, height)).clip(0, 1).astype(np.float32)
    return relative


def image_sizes(dataset: Dataset) -> dict[str, tuple[float, float]]:
    """Return width and height of each image in pixels."""
    columns = (dataset.images[name].tolist() for name in ("image_id", "width", "height"))
    return {str(image_id): (float(width), float(height)) for image_id, width, height in zip(*columns, strict=True)}


def training_boxes(dataset: Dataset, maximum: int) -> dict[str, Tensor]:
    """Return the distinct boxes (t, 4), relative, of each training image's phrases; at most ``maximum`` per image."""
    train = dataset.split(TRAIN)
    sizes = image_sizes(train)
    boxes: dict[str, dict[tuple[float, ...], None]] = {image_id: {} for image_id in sizes}
    for image_id, given in zip(train.phrases["image_id"], train.phrases["boxes"], strict=True):
        boxes[image_id] |= dict.fromkeys(map(tuple, relative_boxes(given, *sizes[image_id]).tolist()))
    dropped = sum(max(len(rows) - maximum, 0) for rows in boxes.values())
    if dropped:
        total = sum(map(len, boxes.values()))
        log_line(f"{dropped} of {total} ground-truth boxes get no features: an image has more than {maximum}")
    return {image_id: torch.tensor(list(rows)[:maximum]).view(-1, 4) for image_id, rows in boxes.items()}
