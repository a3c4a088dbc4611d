"""Hypercolumns: the cells of a feature map, each with what lower layers say of the same place."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, normalize

from bifocal.backbones.timm import TimmBackbone
from bifocal.features.base import ImageRegions
from bifocal.features.boxes import cell_boxes


class Hypercolumns:
    """Named layers of a timm model over the cells of the last one, side by side; box of a cell: its part of the image.

    Hariharan et al., "Hypercolumns for object segmentation and fine-grained localization", CVPR 2015. What a top layer
    that was trained to name objects has forgotten, colour and texture among it, the lower ones still know. Their
    maps are averaged within each cell, and every layer's part of a cell is l2-normalised, so that none drowns the rest.

    Args:
        backbone: name of a timm model.
        layers: names of its modules, from low to high; the map of the last one gives the cells.
        lower_norm: l2 norm of the part of each lower layer; the last one's is 1.
        power: each feature x of the last layer becomes sign(x) |x|^power, before it is normalised (power
            normalisation: Perronnin, Sanchez, Mensink, ECCV 2010, eq. (4)).
        classes: add the probabilities of the backbone's classes in each cell, their square roots, with the norm of a
            lower layer: what the top layer names, which no linear map of it says.
        mirror: average each cell with the cell of the mirrored image that shows the same place; twice the work.
        size: pixels, of the side that the image is resized to, irrespective of its aspect.
        mean, std: of each channel, of pixels in [0, 1]; None for those that timm states for the weights.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Raises:
        ValueError: timm has no such model, the model no such layer, or a number is out of range.
    """

    def __init__(
        self,
        backbone: str = "resnet152",
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
        if not layers or lower_norm < 0 or not 0 < power <= 1:
            raise ValueError(
                f"{len(layers)} layers, lower_norm {lower_norm}, power {power}: expected at least one layer, "
                "a norm of at least 0 and a power in (0, 1]"
            )
        self.backbone = TimmBackbone(backbone, size, "square", mean, std, model_arguments, classes)
        self.layers, self.lower_norm, self.power, self.mirror = tuple(layers), lower_norm, power, mirror
        self.backbone.check_layers(self.layers)

    @property
    def regions(self) -> int:
        """R: the cells of the last layer's map."""
        _, rows, columns = self._shapes[-1]
        return rows * columns

    @property
    def dim(self) -> int:
        """D: the channels of all layers, and the classes."""
        return sum(channels for channels, _, _ in self._shapes)

    def describe(self) -> dict[str, Any]:
        """Backbone, layers, and the channels of these and of the classes."""
        return self.backbone.describe() | {
            "layer": list(self.layers),
            "channels": [channels for channels, _, _ in self._shapes],
            "lower_norm": self.lower_norm,
            "power": self.power,
            "classes": self.backbone.classifies,
            "mirror": self.mirror,
        }

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize."""
        return self.backbone.preprocess(image)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """The cells of each image, row by row."""
        features, boxes = self.cells(torch.stack(list(images)))
        return [ImageRegions(cells, boxes) for cells in features]

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, 3, H, W) uint8 to the features (B, R, D) and boxes (R, 4) of their cells, row by row."""
        columns = self._columns(pixels)
        if self.mirror:
            columns = (columns + self._columns(pixels.flip(3)).flip(3)) / 2
        return columns.flatten(2).transpose(1, 2), cell_boxes(*columns.shape[2:]).to(columns)

    def _columns(self, pixels: Tensor) -> Tensor:
        """Images (B, 3, H, W) to columns (B, D, h, w)."""
        *lower, last = self._maps(pixels)
        rows, columns = last.shape[2:]
        parts = [self.lower_norm * normalize(adaptive_avg_pool2d(level, (rows, columns)), dim=1) for level in lower]
        return torch.cat([*parts, normalize(last.sign() * last.abs() ** self.power, dim=1)], dim=1)

    def _maps(self, pixels: Tensor) -> list[Tensor]:
        """What stands side by side, the last layer last."""
        *lower, last = self.backbone.layer_maps(pixels, self.layers)
        named = [self.backbone.class_maps(last).sqrt()] if self.backbone.classifies else []
        return [*lower, *named, last]

    @cached_property
    def _shapes(self) -> list[tuple[int, int, int]]:
        size = self.backbone.size
        with torch.inference_mode():
            levels = self._maps(torch.zeros(1, 3, size, size, dtype=torch.uint8))
        return [(level.shape[1], level.shape[2], level.shape[3]) for level in levels]
