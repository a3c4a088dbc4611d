"""The pixels themselves, for encoders that train end to end."""

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.preprocessing import Resize
from bifocal.backbones.timm import TimmBackbone
from bifocal.features.base import ImageRegions


class Pixels:
    """Decoded and resized images, 8 bits a channel, and the weights that an encoder over them starts from.

    A row of the store is a row of pixels, of ``size`` x 3 numbers; an image of another aspect is filled up with zeros
    on the right and below. ``FeatureStore.gather`` gives them as (B, 3, size, size). An image takes 3 size^2 bytes:
    0.5 MB of 400 x 400.

    Args:
        size: pixels, of the side of a square image, or of the largest side.
        resize: "square", irrespective of the aspect (BEAN, section 4.2), or "aspect", which keeps it (R-MAC; and what
            the protocol "scale_and_crop" needs).
        backbone: name of the timm model of the encoder.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Raises:
        ValueError: timm has no such model.
    """

    dtype = "uint8"

    def __init__(
        self,
        size: int = 400,
        resize: Resize = "square",
        backbone: str = "resnet152",
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        self.backbone = TimmBackbone(backbone, size, resize, None, None, model_arguments)
        self.regions, self.dim = size, 3 * size

    def describe(self) -> dict[str, Any]:
        """Backbone and preprocessing."""
        return self.backbone.describe() | {"layer": "pixels", "dtype": self.dtype}

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize."""
        return self.backbone.preprocess(image)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """The rows of each image, the three colours of a pixel side by side; the score of a row is its width."""
        return [self._rows(image) for image in images]

    def _rows(self, image: Tensor) -> ImageRegions:
        height, width = image.shape[1:]
        rows = torch.zeros(height, self.regions, 3, dtype=torch.uint8)
        rows[:, :width] = image.permute(1, 2, 0)
        return ImageRegions(rows.flatten(1), scores=torch.full((height,), float(width)))
