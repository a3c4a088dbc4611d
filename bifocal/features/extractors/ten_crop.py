"""Ten-crop features: one vector an image, the mean over five crops and their mirrors."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.timm import TimmBackbone
from bifocal.features.base import ImageRegions


class TenCrop:
    """What comes before the classifier of a timm model (fc7 of VGG), averaged over corners, centre and mirrors.

    Wang et al., "Learning two-branch neural networks" (structure-preserving embeddings), section 3.1: an image of
    256 x 256 pixels, ten crops of 224 x 224, VGG-19, 4096 activations. One region, the whole image.

    Args:
        backbone: name of a timm model.
        size: pixels, of the side that the image is resized to, irrespective of its aspect.
        crop: pixels, of the side of a crop.
        mean, std: of each channel, of pixels in [0, 1]; None for those that timm states for the weights.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Raises:
        ValueError: timm has no such model, or a crop is larger than the image.
    """

    regions = 1

    def __init__(
        self,
        backbone: str = "vgg19",
        size: int = 256,
        crop: int = 224,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        if crop > size:
            raise ValueError(f"TenCrop: crops of {crop} pixels do not fit into {size}: lower crop or raise size")
        self.backbone = TimmBackbone(backbone, size, "square", mean, std, model_arguments)
        self.crop = crop

    @cached_property
    def dim(self) -> int:
        """D, of the last layer before the classifier."""
        size = self.backbone.size
        with torch.inference_mode():
            return self._means(torch.zeros(1, 3, size, size, dtype=torch.uint8)).shape[1]

    def describe(self) -> dict[str, Any]:
        """Backbone and crops."""
        return self.backbone.describe() | {"layer": "before the classifier", "crop": self.crop}

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize."""
        return self.backbone.preprocess(image)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """One region for each image."""
        whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
        return [ImageRegions(mean.unsqueeze(0), whole) for mean in self._means(torch.stack(list(images)))]

    def _means(self, pixels: Tensor) -> Tensor:
        from torchvision.transforms.functional import ten_crop  # here, because it takes seconds to load

        network, crops = self.backbone.network, ten_crop(pixels, [self.crop, self.crop])
        features = network.forward_features(self.backbone.normalized(torch.cat(crops)))
        vectors: Tensor = network.forward_head(features, pre_logits=True)
        return vectors.view(len(crops), len(pixels), -1).mean(dim=0)
