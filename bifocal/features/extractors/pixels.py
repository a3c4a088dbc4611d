"""Pixels, for image encoders that train end to end."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bifocal.features.base import ImageRegions
from bifocal.features.extractors.base import TimmExtractor
from bifocal.features.store import PIXELS
from bifocal.onnx.pixels import Resize


class Pixels(TimmExtractor):
    """Decoded and resized images, 8 bits per channel, with the initial weights of an encoder's
    backbone.

    A region is a row of pixels with ``size`` x 3 numbers; zeros fill the right and the bottom of an
    image that is not square. ``FeatureStore.gather`` returns images (B, 3, size, size). An image
    takes 3 size^2 bytes: 0.5 MB for a size of 400.

    Arguments: see ``TimmExtractor``. BEAN uses the resize "square" (section 4.2); R-MAC and the
    evaluation of VSE++ need "aspect".

    Raises:
        ValueError: timm has no such model.

    Example:
        >>> extractor = Pixels(size=64, backbone="resnet10t")
        >>> (image,) = extractor.extract([torch.zeros(3, 48, 64, dtype=torch.uint8)])
        >>> image.features.shape, image.features.dtype
        (torch.Size([48, 192]), torch.uint8)
    """

    dtype = "uint8"
    keeps_weights = True

    def __init__(
        self,
        size: int = 400,
        resize: Resize = "square",
        backbone: str = "resnet152.tv_in1k",
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, size, resize, model_arguments=model_arguments)
        self.regions, self.dim = size, 3 * size

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"layer": PIXELS, "dtype": self.dtype}

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """Return each image's rows, with the three channels of a pixel adjacent; a row's score is
        its width."""
        return [self._rows(image) for image in images]

    def _rows(self, image: Tensor) -> ImageRegions:
        height, width = image.shape[1:]
        rows = torch.zeros(height, self.regions, 3, dtype=torch.uint8)
        rows[:, :width] = image.permute(1, 2, 0)
        return ImageRegions(rows.flatten(1), scores=torch.full((height,), float(width)))
