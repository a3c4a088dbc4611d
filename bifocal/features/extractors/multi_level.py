"""Multi-level features: the maps of several layers, each resampled to the same cells."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from bifocal.features.base import ImageRegions
from bifocal.features.boxes import cell_boxes
from bifocal.features.extractors.base import TimmExtractor


class MultiLevel(TimmExtractor):
    """Outputs of several layers of a timm model, each resampled to cells x cells regions; level by level, row by row.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, table 1: VGG
    conv4_1, conv4_3, conv5_1, conv5_3 (after their ReLU) at 18 x 18; for PNASNet ``backbone="pnasnet5large.tf_in1k"``,
    ``layers=["cell_5", "cell_7", "cell_9", "cell_11"]`` at 19 x 19. Images are resized to 300 x 300, which gives the
    map sizes of the table. Levels with fewer channels than the widest one are padded with zeros; the metadata hold the
    number of channels of each level.

    Further arguments: see ``TimmExtractor``.

    Args:
        layers: names of the model's modules, from low to high.
        cells: M, cells per side; maps of another size are resampled bilinearly.

    Raises:
        ValueError: timm has no such model, or the model has no such layer.

    Example:
        >>> extractor = MultiLevel("resnet10t", layers=("layer3", "layer4"), cells=3, size=64)
        >>> (image,) = extractor.extract([torch.zeros(3, 64, 64, dtype=torch.uint8)])
        >>> image.features.shape  # 2 levels x 3 x 3 cells, padded to 512 channels
        torch.Size([18, 512])
    """

    def __init__(
        self,
        backbone: str = "vgg16.tv_in1k",
        layers: tuple[str, ...] = ("features.18", "features.22", "features.25", "features.29"),
        cells: int = 18,
        size: int = 300,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, size, "square", mean, std, model_arguments)
        # Not self.cells: GridExtractor has a method of this name.
        self.layers, self.cells_per_side = tuple(layers), cells
        self.backbone.check_layers(self.layers)

    @property
    def regions(self) -> int:
        """R: levels x cells x cells."""
        return len(self.layers) * self.cells_per_side**2

    @property
    def dim(self) -> int:
        """D: number of channels of the widest level."""
        return max(self._channels)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "layer": list(self.layers),
            "channels": self._channels,
            "cells": self.cells_per_side,
        }

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """Return the cells of all levels of each image."""
        levels = [self._cells(maps) for maps in self.backbone.layer_maps(torch.stack(list(images)), self.layers)]
        boxes = cell_boxes(self.cells_per_side, self.cells_per_side).repeat(len(self.layers), 1)
        return [ImageRegions(cells, boxes) for cells in torch.cat(levels, dim=1)]

    def _cells(self, maps: Tensor) -> Tensor:
        """Resample a level (B, C, h, w) to cells (B, M * M, D)."""
        size = (self.cells_per_side, self.cells_per_side)
        resampled = interpolate(maps, size=size, mode="bilinear", align_corners=False)
        return pad(resampled.flatten(2).transpose(1, 2), (0, self.dim - maps.shape[1]))

    @cached_property
    def _channels(self) -> list[int]:
        with torch.inference_mode():
            levels = self.backbone.layer_maps(self.backbone.blank_image(), self.layers)
        return [maps.shape[1] for maps in levels]
