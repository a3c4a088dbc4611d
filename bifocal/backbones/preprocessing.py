"""Image preprocessing: convert to a tensor, normalize; run a function on images of several shapes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

T = TypeVar("T")


def to_pixels(image: Image.Image) -> Tensor:
    """Convert an RGB image to a tensor (3, H, W) uint8."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def normalize_pixels(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Return ``(pixels / 255 - mean) / std`` of pixels (B, 3, H, W) uint8, as float32, channels last in memory."""
    scale = 255 * torch.tensor(std, device=pixels.device).view(3, 1, 1)
    shift = 255 * torch.tensor(mean, device=pixels.device).view(3, 1, 1)
    channels_last = pixels.to(torch.float32, memory_format=torch.channels_last)
    return (channels_last - shift) / scale


def map_by_shape(
    images: Sequence[Tensor], function: Callable[[Tensor], Iterable[T]], batch_size: int | None = None
) -> list[T]:
    """Call ``function`` on stacks (b, 3, h, w) of images of one shape; return one result per image, in order.

    Images are not padded: padding would change the features at the border. ``batch_size`` is the maximum b.
    """
    groups: dict[torch.Size, list[int]] = defaultdict(list)
    for index, image in enumerate(images):
        groups[image.shape].append(index)
    results: dict[int, T] = {}
    for indices in groups.values():
        size = batch_size or len(indices)
        for start in range(0, len(indices), size):
            chunk = indices[start : start + size]
            results |= zip(chunk, function(torch.stack([images[index] for index in chunk])), strict=True)
    return [results[index] for index in range(len(images))]
