"""Pooled layers: one vector per image, of several layers and the class probabilities."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bifocal.features.boxes import CellExtractor, cell_boxes
from bifocal.features.extractors.base import TimmExtractor
from bifocal.registry import check_range


class PooledLayers(TimmExtractor, CellExtractor):
    """Means of the outputs of several timm layers, concatenated; the only region is the image.

    The top layer of a network that was trained to name objects discards color and texture; lower
    layers keep them (Hariharan et al., CVPR 2015). Each value x becomes sign(x) |x|^power before
    the mean (power normalization: Perronnin, Sanchez, Mensink, ECCV 2010, eq. (4)). Images are
    resized to a square. An encoder that standardizes its inputs, such as ``LinearEncoder`` with
    ``standardize``, gives all layers the same weight.

    Further arguments: see ``TimmExtractor``.

    Args:
        layers: names of the model's modules, from low to high.
        power: p, in (0, 1].
        classes: append the mean class probabilities of the cells of the last layer, raised to
            ``power``.

    Raises:
        ValueError: timm has no such model, the model has no such layer, or ``power`` is out of
            range.

    Example:
        >>> extractor = PooledLayers("resnet10t", layers=("layer3", "layer4"), size=64)
        >>> (image,) = extractor.extract([torch.zeros(3, 64, 64, dtype=torch.uint8)])
        >>> image.features.shape  # 256 + 512 channels, 1,000 classes
        torch.Size([1, 1768])
    """

    keeps_weights = True
    regions = 1

    def __init__(
        self,
        backbone: str = "tf_efficientnet_lite2.in1k",
        layers: tuple[str, ...] = ("blocks.4", "blocks.5", "blocks.6", "bn2"),
        power: float = 0.5,
        classes: bool = True,
        size: int = 260,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        check_range("[1, inf)", layers=len(layers))
        check_range("(0, 1]", power=power)
        super().__init__(
            backbone, size, "square", mean, std, model_arguments, with_classifier=classes
        )
        self.layers, self.power = tuple(layers), power
        self.tapped = self.layers
        self.backbone.check_layers(self.layers)

    @cached_property
    def dim(self) -> int:
        """D: number of channels in all layers, plus the number of classes if requested."""
        with torch.inference_mode():
            return self.cells(self.backbone.blank_image())[0].shape[2]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "layer": list(self.layers),
            "power": self.power,
            "classes": self.backbone.with_classifier,
        }

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (B, 3, H, W) uint8 to features (B, 1, D) and the box (1, 4) of the image."""
        maps = self.backbone.layer_maps(pixels, self.layers)
        means = [self._raised(layer).mean(dim=(2, 3)) for layer in maps]
        if self.backbone.with_classifier:
            means.append(self._raised(self.backbone.class_maps(maps[-1]).mean(dim=(2, 3))))
        features = torch.cat(means, dim=1).unsqueeze(1)
        return features, cell_boxes(1, 1).to(features.device)

    def _raised(self, values: Tensor) -> Tensor:
        return values.sign() * values.abs() ** self.power
