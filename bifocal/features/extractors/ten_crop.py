"""Ten-crop features: one vector per image, the mean over five crops and their mirror images."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bifocal.features.base import ImageRegions
from bifocal.features.extractors.base import TimmExtractor


class TenCrop(TimmExtractor):
    """Input of a timm model's classifier (fc7 of VGG), averaged over the corners, the center and
    their mirror images.

    Wang et al., "Learning deep structure-preserving image-text embeddings", CVPR 2016, section 3.1:
    an image of 256 x 256 pixels, ten crops of 224 x 224, VGG-19, 4096 activations. The only region
    is the whole image.

    Further arguments: see ``TimmExtractor``.

    Args:
        crop: side of a crop in pixels.

    Raises:
        ValueError: timm has no such model, or a crop is larger than the image.

    Example:
        >>> extractor = TenCrop("resnet10t", size=64, crop=48)
        >>> (image,) = extractor.extract([torch.zeros(3, 64, 64, dtype=torch.uint8)])
        >>> image.features.shape
        torch.Size([1, 512])
    """

    regions = 1

    def __init__(
        self,
        backbone: str = "vgg19.tv_in1k",
        size: int = 256,
        crop: int = 224,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        if crop > size:
            raise ValueError(
                f"TenCrop: crops of {crop} pixels do not fit into {size}: lower crop or raise size"
            )
        super().__init__(backbone, size, "square", mean, std, model_arguments)
        self.crop = crop

    @cached_property
    def dim(self) -> int:
        """D: dimension of the classifier's input."""
        with torch.inference_mode():
            return self._mean_features(self.backbone.blank_image()).shape[1]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"layer": "before the classifier", "crop": self.crop}

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
        return [
            ImageRegions(mean.unsqueeze(0), whole)
            for mean in self._mean_features(torch.stack(list(images)))
        ]

    def _mean_features(self, pixels: Tensor) -> Tensor:
        from torchvision.transforms.functional import ten_crop  # imported here: it takes seconds

        network, crops = self.backbone.network, ten_crop(pixels, [self.crop, self.crop])
        features = network.forward_features(self.backbone.normalize(torch.cat(crops)))
        vectors: Tensor = network.forward_head(features, pre_logits=True)
        return vectors.view(len(crops), len(pixels), -1).mean(dim=0)
