"""From an image to pixels of the size that a network expects."""

from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

Resize = Literal["square", "aspect"]
"""``square``: size x size, irrespective of the aspect. ``aspect``: the largest side becomes size."""


def resized(image: Image.Image, size: int, resize: Resize, interpolation: str) -> Image.Image:
    """Resize an image; ``size`` in pixels, ``interpolation`` by its Pillow name ("bicubic")."""
    if resize == "square":
        width = height = size
    else:
        scale = size / max(image.size)
        width, height = (max(1, round(side * scale)) for side in image.size)
    if image.size == (width, height):
        return image
    return image.resize((width, height), Image.Resampling[interpolation.upper()])


def to_pixels(image: Image.Image) -> Tensor:
    """The pixels of an RGB image: (3, H, W) uint8."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def normalized(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """``(pixels / 255 - mean) / std`` of (B, 3, H, W) uint8, as float32 with the channels last in memory."""
    scale = 255 * torch.tensor(std, device=pixels.device).view(3, 1, 1)
    shift = 255 * torch.tensor(mean, device=pixels.device).view(3, 1, 1)
    channels_last = pixels.to(torch.float32, memory_format=torch.channels_last)
    return (channels_last - shift) / scale
