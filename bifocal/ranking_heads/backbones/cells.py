"""The cells of a timm backbone's last map."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bifocal.backbones.timm.trainable import (
    EVAL_BATCH_SIZE,
    PixelBackbone,
    random_crops,
    resize_for_eval,
    whole_images,
)
from bifocal.ranking_heads.backbones.base import RankingBackbone


class CellBackbone(RankingBackbone):
    """The cells of the last map of a timm backbone, over pixels.

    Thesis 5.5.1 has a ResNet-34, whose cells ``MLPHead`` averages, and 5.5.2 a ResNet-101, whose
    cells ``WildcatHead`` classifies. In evaluation an image is resized to a square, which changes
    its aspect ratio.

    Args:
        input_dim: 3, for pixels.
        backbone: name of a timm model.
        image_size: pixels, side of the square.
        min_crop_area: smallest share of the image in a random crop of the training, which has an
            aspect ratio from 3/4 to 4/3 and is resized to ``image_size``; None trains on whole
            images.
        flip: mirror the images of the training at random, each with probability 1/2.
        model_arguments: further keyword arguments of ``timm.create_model``.

    Example:
        >>> small = {"channels": [4, 4, 4, 8], "stem_width": 4}
        >>> backbone = CellBackbone(backbone="resnet10t", image_size=64, model_arguments=small)
        >>> features, mask = backbone(
        ...     torch.rand(2, 3, 48, 64), torch.ones(2, 48, 64, dtype=torch.bool)
        ... )
        >>> features.shape, mask.shape
        (torch.Size([2, 4, 8]), torch.Size([2, 4]))
    """

    def __init__(
        self,
        input_dim: int = 3,
        backbone: str = "resnet34.tv_in1k",
        image_size: int = 224,
        min_crop_area: float | None = None,
        flip: bool = False,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        if input_dim != 3:
            raise ValueError(
                f"CellBackbone: {backbone} reads pixels, of 3 channels, and the features have "
                f"{input_dim}: extract features with Pixels, or set backbone to null to train "
                "only the head on stored features"
            )
        if min_crop_area is not None and not 0 < min_crop_area <= 1:
            raise ValueError(
                f"min_crop_area is {min_crop_area}: expected a share of the image in (0, 1]"
            )
        network = PixelBackbone(backbone, model_arguments)
        super().__init__(network.channels)
        self.network, self.image_size = network, image_size
        self.min_crop_area, self.flip = min_crop_area, flip

    def forward(self, pixels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        if self.training and self.min_crop_area is not None:
            images = random_crops(whole_images(pixels, mask), self.image_size, self.min_crop_area)
        else:
            images = torch.stack(resize_for_eval(pixels, mask, "stretch", self.image_size))
        if self.training and self.flip:
            mirrored = (torch.rand(len(images)) < 0.5).to(images.device)
            images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(3), images)
        # Training keeps the activations of the whole batch in any case; evaluation bounds its
        # memory.
        chunks = [images] if self.training else images.split(EVAL_BATCH_SIZE)
        features = torch.cat([self.embed_pixels(chunk) for chunk in chunks])
        return features, features.new_ones(features.shape[:2], dtype=torch.bool)

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        return ("batch", 3, self.image_size, self.image_size)

    def keeps_square(self, size: int) -> bool:
        return size == self.image_size

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        maps: Tensor = self.network(pixels)
        return maps.flatten(2).transpose(1, 2)

    def load_pretrained(self, directory: Path) -> None:
        self.network.load_pretrained(directory)
