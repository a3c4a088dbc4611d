"""Multi-level features: the maps of several layers, each resampled to the same cells."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from bifocal.features.boxes import CellExtractor, cell_boxes
from bifocal.features.extractors.base import TimmExtractor
from bifocal.features.extractors.grid import Grid


class MultiLevel(TimmExtractor, CellExtractor):
    """Outputs of several layers of a timm model, each resampled to cells x cells regions; level by
    level, row by row.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR
    2019, table 1: VGG conv4_1, conv4_3, conv5_1, conv5_3 (after their ReLU) at 18 x 18. Images are
    resized to 299 x 299, which gives the map sizes of the table. All levels must have as many
    channels; a ``MultiLevelEncoder`` with a backbone needs no stored features, and its levels may
    differ.

    Further arguments: see ``TimmExtractor``.

    Args:
        layers: names of the model's modules, from low to high.
        cells: M, cells per side; maps of another size are resampled bilinearly.

    Raises:
        ValueError: timm has no such model, the model has no such layer, or the layers differ in
            their channels.

    Example:
        >>> layers = ("layer3.0.bn1", "layer3")
        >>> extractor = MultiLevel("resnet10t", layers, cells=3, size=64)
        >>> (image,) = extractor.extract([torch.zeros(3, 64, 64, dtype=torch.uint8)])
        >>> image.features.shape  # 2 levels x 3 x 3 cells
        torch.Size([18, 256])
    """

    keeps_weights = True

    def __init__(
        self,
        backbone: str = "vgg16.tv_in1k",
        layers: tuple[str, ...] = ("features.18", "features.22", "features.25", "features.29"),
        cells: int = 18,
        size: int = 299,
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

    @cached_property
    def dim(self) -> int:
        channels = self.backbone.layer_channels(self.layers)
        if len(set(channels)) > 1:
            raise ValueError(
                f"the layers {', '.join(self.layers)} of {self.backbone.name} have {channels} "
                "channels: MultiLevel stores levels of one width; extract ImageFiles, and "
                "give MultiLevelEncoder the backbone and its layers"
            )
        return channels[0]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"layer": list(self.layers), "cells": self.cells_per_side}

    def grid(self) -> Grid:
        """Return the extractor of the same network's last map, on which ``TrainOnPhrases`` trains a
        backbone."""
        config = self.backbone.config
        grid = Grid(config.backbone, size=config.size, model_arguments=config.model_arguments)
        grid.backbone = self.backbone
        return grid

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (B, 3, H, W) uint8 to features (B, R, D) and boxes (R, 4) of the cells of all
        levels."""
        levels = [self._resampled(maps) for maps in self.backbone.layer_maps(pixels, self.layers)]
        boxes = cell_boxes(self.cells_per_side, self.cells_per_side).repeat(len(self.layers), 1)
        return torch.cat(levels, dim=1), boxes

    def _resampled(self, maps: Tensor) -> Tensor:
        """Resample a level (B, D, h, w) to cells (B, M * M, D)."""
        size = (self.cells_per_side, self.cells_per_side)
        resampled = interpolate(maps, size=size, mode="bilinear", align_corners=False)
        return resampled.flatten(2).transpose(1, 2)
