"""R-MAC: one vector an image, from the maxima of many regions of a feature map."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.backbones.timm import TimmBackbone
from bifocal.backbones.whitening import Whitening
from bifocal.features.base import ImageRegions, in_batches_of_one_shape
from bifocal.features.extractors.rmac_regions import region_maxima


class RMAC:
    """Regional maximum activations of a timm backbone, whitened and summed. One region, the whole image.

    Gordo, Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 3 (after Tolias et al., ICLR 2016): the
    image keeps its aspect, its largest side is 576 pixels; the map is max-pooled over a grid of squares at two scales;
    each region is l2-normalised, PCA-whitened and l2-normalised again; their sum is l2-normalised. The whitening is
    learnt on images of the split "train", and lies in the artifact's ``weights.safetensors`` with the backbone.

    Args:
        backbone: name of a timm model.
        size: pixels, of the largest side.
        scales: of the grid.
        dim: D, dimensions that the whitening keeps; None for all channels.
        learnt_on: most images, drawn with the seed, that the whitening is learnt on.
        mean, std: of each channel, of pixels in [0, 1]; None for those that timm states for the weights.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Raises:
        ValueError: timm has no such model, or ``dim`` is more than its channels.
    """

    regions = 1

    def __init__(
        self,
        backbone: str = "resnet101",
        size: int = 576,
        scales: int = 2,
        dim: int | None = None,
        learnt_on: int = 5000,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        self.backbone = TimmBackbone(backbone, size, "aspect", mean, std, model_arguments)
        self.scales, self.learnt_on = scales, learnt_on
        self.wanted = dim
        self.whitening: Whitening | None = None

    @cached_property
    def channels(self) -> int:
        """C, of the map."""
        with torch.inference_mode():
            return self.backbone.feature_map(torch.zeros(1, 3, 64, 64, dtype=torch.uint8), None).shape[1]

    @property
    def dim(self) -> int:
        """D."""
        if self.wanted is not None and self.wanted > self.channels:
            raise ValueError(f"RMAC: dim is {self.wanted}, and {self.backbone.name} has {self.channels} channels")
        return self.channels if self.wanted is None else self.wanted

    def describe(self) -> dict[str, Any]:
        """Backbone and grid."""
        return self.backbone.describe() | {"layer": "forward_features", "scales": self.scales}

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize."""
        return self.backbone.preprocess(image)

    def region_vectors(self, images: Sequence[Tensor]) -> list[Tensor]:
        """The l2-normalised maxima (n, C) of each image's regions, float32."""

        def of_one_shape(pixels: Tensor) -> list[Tensor]:
            maxima = region_maxima(self.backbone.feature_map(pixels, None), self.scales)
            return list(normalize(maxima.float(), dim=2))

        return in_batches_of_one_shape(images, of_one_shape)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """One region for each image.

        Raises:
            ValueError: there is no whitening yet.
        """
        if self.whitening is None:
            raise ValueError("RMAC has no whitening: learn one with bifocal.backbones.whitening.learn_whitening")
        whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
        whitening = Whitening(*(part.to(self.backbone.device) for part in self.whitening))
        return [ImageRegions(aggregated(regions, whitening), whole) for regions in self.region_vectors(images)]


def aggregated(regions: Tensor, whitening: Whitening) -> Tensor:
    """Normalised regions (n, C), whitened, normalised, summed and normalised: (1, D)."""
    return normalize(normalize(whitening(regions), dim=1).sum(dim=0, keepdim=True), dim=1)
