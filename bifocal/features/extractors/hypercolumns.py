"""Hypercolumns: the cells of a feature map with the lower layers' features at the same location."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, normalize

from bifocal.features.boxes import CellExtractor, cells_of
from bifocal.features.extractors.base import TimmExtractor
from bifocal.registry import check_range


class Hypercolumns(TimmExtractor, CellExtractor):
    """Outputs of several timm layers, concatenated in each cell of the last layer's map.

    Hariharan et al., "Hypercolumns for object segmentation and fine-grained localization", CVPR
    2015. The top layer of a network that was trained to name objects discards color and texture;
    lower layers keep them. The lower maps are averaged within each cell, and the features of each
    layer are L2-normalized, so that no layer dominates. Images are resized to a square; the box of
    a cell is its share of the image.

    Further arguments: see ``TimmExtractor``.

    Args:
        layers: names of the model's modules, from low to high; the last map defines the cells.
        lower_norm: L2 norm of the features of each lower layer; the last layer's have norm 1.
        power: each feature x of the last layer becomes sign(x) |x|^power before it is normalized
            (power
            normalization: Perronnin, Sanchez, Mensink, ECCV 2010, eq. (4)).
        classes: append the square roots of the class probabilities in each cell, with the norm of a
            lower layer. No linear map of the top layer computes them.
        mirror: average each cell with the corresponding cell of the mirrored image; doubles the
            computation.

    Raises:
        ValueError: timm has no such model, the model has no such layer, or a number is out of
            range.

    Example:
        >>> extractor = Hypercolumns("resnet10t", layers=("layer3", "layer4"), size=64)
        >>> (image,) = extractor.extract([torch.zeros(3, 64, 64, dtype=torch.uint8)])
        >>> image.features.shape  # 2 x 2 cells, 256 + 512 channels
        torch.Size([4, 768])
    """

    keeps_weights = True

    def __init__(
        self,
        backbone: str = "resnet152.tv_in1k",
        layers: tuple[str, ...] = ("layer2", "layer3", "layer4"),
        lower_norm: float = 0.5,
        power: float = 1.0,
        classes: bool = False,
        mirror: bool = False,
        size: int = 224,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        check_range("[1, inf)", layers=len(layers))
        check_range("[0, inf)", lower_norm=lower_norm)
        check_range("(0, 1]", power=power)
        super().__init__(
            backbone, size, "square", mean, std, model_arguments, with_classifier=classes
        )
        self.layers, self.lower_norm, self.power, self.mirror = (
            tuple(layers),
            lower_norm,
            power,
            mirror,
        )
        self.tapped = self.layers
        self.backbone.check_layers(self.layers)

    @property
    def regions(self) -> int:
        """R: number of cells of the last layer's map."""
        _, rows, columns = self._shapes[-1]
        return rows * columns

    @property
    def dim(self) -> int:
        """D: number of channels in all layers, plus the number of classes if requested."""
        return sum(channels for channels, _, _ in self._shapes)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "layer": list(self.layers),
            "channels": [channels for channels, _, _ in self._shapes],
            "lower_norm": self.lower_norm,
            "power": self.power,
            "classes": self.backbone.with_classifier,
            "mirror": self.mirror,
        }

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (B, 3, H, W) uint8 to features (B, R, D) and boxes (R, 4) of their cells, row
        by row."""
        columns = self._columns(pixels)
        if self.mirror:
            columns = (columns + self._columns(pixels.flip(3)).flip(3)) / 2
        return cells_of(columns)

    def _columns(self, pixels: Tensor) -> Tensor:
        """Map images (B, 3, H, W) to hypercolumns (B, D, h, w)."""
        *lower, last = self._maps(pixels)
        rows, columns = last.shape[2:]
        parts = [
            self.lower_norm * normalize(adaptive_avg_pool2d(maps, (rows, columns)), dim=1)
            for maps in lower
        ]
        return torch.cat([*parts, normalize(last.sign() * last.abs() ** self.power, dim=1)], dim=1)

    def _maps(self, pixels: Tensor) -> list[Tensor]:
        """Return the maps to concatenate: lower layers, class probabilities, last layer."""
        *lower, last = self.backbone.layer_maps(pixels, self.layers)
        classes = [self.backbone.class_maps(last).sqrt()] if self.backbone.with_classifier else []
        return [*lower, *classes, last]

    @cached_property
    def _shapes(self) -> list[tuple[int, int, int]]:
        with torch.inference_mode():
            maps = self._maps(self.backbone.blank_image())
        return [(features.shape[1], features.shape[2], features.shape[3]) for features in maps]
