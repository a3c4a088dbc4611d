"""The protocol of backbones, and the preprocessing of their images."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

T = TypeVar("T")


class Backbone(Protocol):
    """A network with pretrained weights that its library can download."""

    network: nn.Module
    classifier_prefix: (
        str  # first component of the names of its weights ("fc"); empty without a classifier
    )

    def describe(self) -> dict[str, Any]:
        """Return the name of the network as ``backbone``, and its preprocessing."""

    def pretrained_state(self) -> dict[str, Tensor]:
        """Download and return the library's weights."""

    def download_url(self) -> str:
        """Return the address of the library's weights, for a download by hand."""


class DescribedBackbone:
    """A backbone that reads squares of ``size``, cut from images of ``scaled`` pixels if ``resize``
    is "crop"."""

    name: str
    model_arguments: dict[str, Any]
    resize: str

    def describe(self) -> dict[str, Any]:
        preprocessing = (
            "size",
            "resize",
            "interpolation",
            "mean",
            "std",
            *(["scaled"] * (self.resize == "crop")),
        )
        return {
            "backbone": self.name,
            "model_arguments": self.model_arguments,
            "preprocessing": {name: getattr(self, name) for name in preprocessing},
        }


def to_pixels(image: Image.Image) -> Tensor:
    """Convert an RGB image to a tensor (3, H, W) uint8."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def normalize_pixels(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Return ``(pixels / 255 - mean) / std`` of pixels (B, 3, H, W) uint8, as float32, channels
    last in memory."""
    scale = 255 * torch.tensor(std, device=pixels.device).view(3, 1, 1)
    shift = 255 * torch.tensor(mean, device=pixels.device).view(3, 1, 1)
    channels_last = pixels.to(torch.float32, memory_format=torch.channels_last)
    return (channels_last - shift) / scale


def map_by_shape(
    images: Sequence[Tensor],
    function: Callable[[Tensor], Iterable[T]],
    batch_size: int | None = None,
) -> list[T]:
    """Call ``function`` on stacks (b, 3, h, w) of images of one shape; return one result per image,
    in order.

    Images are not padded: padding would change the features at the border. ``batch_size`` is the
    maximum b.
    """
    groups: dict[torch.Size, list[int]] = defaultdict(list)
    for index, image in enumerate(images):
        groups[image.shape].append(index)
    results: dict[int, T] = {}
    for indices in groups.values():
        size = batch_size or len(indices)
        for start in range(0, len(indices), size):
            chunk = indices[start : start + size]
            results |= zip(
                chunk, function(torch.stack([images[index] for index in chunk])), strict=True
            )
    return [results[index] for index in range(len(images))]
