"""R-MAC: one vector per image, from the maxima of a feature map over many regions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.backbones.base import map_by_shape
from bifocal.backbones.whitening import Whitening, learn_whitening
from bifocal.features.base import ImageRegions
from bifocal.features.extractors.base import TimmExtractor
from bifocal.features.extractors.rmac_regions import region_maxima


class RMAC(TimmExtractor):
    """Regional maximum activations of a timm backbone, whitened and summed. The only region is the
    whole image.

    Gordo, Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 3 (after Tolias et
    al., ICLR 2016): the image keeps its aspect ratio, its longer side is 576 pixels; the map is
    max-pooled over a grid of squares at two scales; each region is L2-normalized, PCA-whitened and
    L2-normalized again; the sum is L2-normalized. The whitening is learned from training images and
    kept in the weights file, with the backbone.

    Further arguments: see ``TimmExtractor``.

    Args:
        scales: number of scales of the grid.
        dim: D, dimensions that the whitening keeps; None for all channels.
        whitening_images: maximum number of training images to learn the whitening from; they are
            drawn at random.

    Raises:
        ValueError: timm has no such model, or ``dim`` exceeds its number of channels.

    Example:
        >>> extractor = RMAC("resnet10t", size=96, dim=2)
        >>> images = [torch.randint(0, 256, (3, 96, 96), dtype=torch.uint8) for _ in range(4)]
        >>> sorted(extractor.fit([images]))
        ['whitening.mean', 'whitening.projection']
        >>> extractor.extract(images)[0].features.shape
        torch.Size([1, 2])
    """

    regions = 1
    keeps_weights = True
    extra_names = ("whitening.mean", "whitening.projection")

    def __init__(
        self,
        backbone: str = "resnet101.tv_in1k",
        size: int = 576,
        scales: int = 2,
        dim: int | None = None,
        whitening_images: int = 5000,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, size, "aspect", mean, std, model_arguments)
        self.scales, self.fit_images = scales, whitening_images
        self._dim = dim
        self.whitening: Whitening | None = None

    @cached_property
    def channels(self) -> int:
        """C: number of channels of the map."""
        with torch.inference_mode():
            return self.backbone.feature_map(
                torch.zeros(1, 3, 64, 64, dtype=torch.uint8), None
            ).shape[1]

    @property
    def dim(self) -> int:
        if self._dim is not None and self._dim > self.channels:
            raise ValueError(
                f"RMAC: dim is {self._dim}, but {self.backbone.name} has {self.channels} channels"
            )
        return self.channels if self._dim is None else self._dim

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"layer": "forward_features", "scales": self.scales}

    def fit(self, batches: Iterable[Sequence[Tensor]]) -> dict[str, Tensor]:
        """Learn the whitening from batches of preprocessed images; return its tensors by name."""

        def vectors() -> Iterator[Tensor]:
            for images in batches:
                with torch.inference_mode():
                    yield torch.cat(self.region_vectors(images))

        self.whitening = learn_whitening(vectors(), self.dim)
        return dict(zip(self.extra_names, self.whitening, strict=True))

    def load_extra(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the whitening; of a whitening to more dimensions, use the first D."""
        mean, projection = (tensors[name] for name in self.extra_names)
        self.whitening = Whitening(mean, projection[: self.dim])

    def region_vectors(self, images: Sequence[Tensor]) -> list[Tensor]:
        """Return the L2-normalized maxima (n, C) of each image's regions, float32."""

        def of_one_shape(pixels: Tensor) -> list[Tensor]:
            maxima = region_maxima(self.backbone.feature_map(pixels, None), self.scales)
            return list(normalize(maxima.float(), dim=2))

        return map_by_shape(images, of_one_shape)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        if self.whitening is None:
            raise ValueError(
                "RMAC has no whitening: call fit() with training images, or load_extra()"
            )
        whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
        whitening = Whitening(*(tensor.to(self.backbone.device) for tensor in self.whitening))
        return [
            ImageRegions(aggregate(regions, whitening), whole)
            for regions in self.region_vectors(images)
        ]


def aggregate(regions: Tensor, whitening: Whitening) -> Tensor:
    """Whiten and normalize regions (n, C), sum them and normalize the sum: (1, D)."""
    return normalize(normalize(whitening(regions), dim=1).sum(dim=0, keepdim=True), dim=1)
