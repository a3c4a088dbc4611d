"""Multi-level features: the maps of several layers, each resampled to the same cells."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, pad

from bifocal.backbones.timm import TimmBackbone
from bifocal.features.base import ImageRegions
from bifocal.features.boxes import cell_boxes


class MultiLevel:
    """Named layers of a timm model, each as cells x cells regions; level by level, row by row.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, table 1: VGG
    conv4_1, conv4_3, conv5_1, conv5_3 (after their ReLU) at 18 x 18; for PNASNet ``backbone="pnasnet5large"``,
    ``layers=["cell_5", "cell_7", "cell_9", "cell_11"]`` at 19 x 19. Images are resized to 300 x 300, which gives the
    table's maps. Where levels differ in channels, the narrower ones are filled with zeros; the metadata say how
    many channels each has.

    Args:
        backbone: name of a timm model.
        layers: names of its modules, from low to high.
        cells: M, of a side; maps of another size are resampled bilinearly.
        size: pixels, of the side that the image is resized to, irrespective of its aspect.
        mean, std: of each channel, of pixels in [0, 1]; None for those that timm states for the weights.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Raises:
        ValueError: timm has no such model, or the model no such layer.
    """

    def __init__(
        self,
        backbone: str = "vgg16",
        layers: tuple[str, ...] = ("features.18", "features.22", "features.25", "features.29"),
        cells: int = 18,
        size: int = 300,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        self.backbone = TimmBackbone(backbone, size, "square", mean, std, model_arguments)
        self.layers, self.cells = tuple(layers), cells
        self.backbone.check_layers(self.layers)

    @property
    def regions(self) -> int:
        """R: levels x cells x cells."""
        return len(self.layers) * self.cells**2

    @property
    def dim(self) -> int:
        """D: channels of the widest level."""
        return max(self._channels)

    def describe(self) -> dict[str, Any]:
        """Backbone, layers and their channels."""
        return self.backbone.describe() | {
            "layer": list(self.layers),
            "channels": self._channels,
            "cells": self.cells,
        }

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize."""
        return self.backbone.preprocess(image)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """The cells of all levels of each image."""
        levels = [self._cells(level) for level in self.backbone.layer_maps(torch.stack(list(images)), self.layers)]
        boxes = cell_boxes(self.cells, self.cells).repeat(len(self.layers), 1)
        return [ImageRegions(cells, boxes) for cells in torch.cat(levels, dim=1)]

    def _cells(self, level: Tensor) -> Tensor:
        """A map (B, C, h, w) as cells (B, M * M, D)."""
        resampled = interpolate(level, size=(self.cells, self.cells), mode="bilinear", align_corners=False)
        return pad(resampled.flatten(2).transpose(1, 2), (0, self.dim - level.shape[1]))

    @cached_property
    def _channels(self) -> list[int]:
        size = self.backbone.size
        with torch.inference_mode():
            levels = self.backbone.layer_maps(torch.zeros(1, 3, size, size, dtype=torch.uint8), self.layers)
        return [level.shape[1] for level in levels]
