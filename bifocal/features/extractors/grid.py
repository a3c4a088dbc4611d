"""Grid features: the cells of a backbone's feature map are the regions."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.preprocessing import Resize
from bifocal.backbones.timm import TimmBackbone
from bifocal.features.base import ImageRegions, in_batches_of_one_shape
from bifocal.features.boxes import cell_boxes, coordinates


class Grid:
    """The cells of a feature map of any timm backbone, as regions; box of a cell: its part of the image.

    Args:
        backbone: name of a timm model, with or without the tag of its weights ("resnet152.a1_in1k").
        stage: of the backbone, from 0, as timm's ``feature_info`` counts; None for ``forward_features``.
        size: pixels, of the side of a square image, or of the largest side.
        resize: "square", irrespective of the aspect, or "aspect", which keeps it.
        mean, std: of each channel, of pixels in [0, 1]; None for those that timm states for the weights.
        coordinates: append the cell's x0 y0 x1 y1, width, height and area, times ``coordinate_scale``.
        coordinate_scale: what a coordinate of 1 becomes; of the size of the other features.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Raises:
        ValueError: timm has no such model, or its features are no map.
    """

    def __init__(
        self,
        backbone: str = "resnet152",
        stage: int | None = None,
        size: int = 224,
        resize: Resize = "square",
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        coordinates: bool = False,
        coordinate_scale: float = 1.0,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        self.backbone = TimmBackbone(backbone, size, resize, mean, std, model_arguments)
        self.stage = stage
        self.coordinates, self.coordinate_scale = coordinates, coordinate_scale
        if stage is not None:
            self.backbone.check_stage(stage)

    @property
    def regions(self) -> int:
        """R: the cells of the largest map, that of a square image."""
        _, rows, columns = self.map_shape
        return rows * columns

    @property
    def dim(self) -> int:
        """D: channels of the map, and 7 coordinates if they are wanted."""
        return self.map_shape[0] + 7 * self.coordinates

    def describe(self) -> dict[str, Any]:
        """Backbone, layer and preprocessing."""
        return self.backbone.describe() | {
            "layer": "forward_features" if self.stage is None else f"stage {self.stage}",
            "coordinates": self.coordinate_scale if self.coordinates else None,
        }

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize."""
        return self.backbone.preprocess(image)

    def feature_map(self, pixels: Tensor) -> Tensor:
        """Images (B, 3, H, W) uint8 to the map (B, C, h, w)."""
        return self.backbone.feature_map(pixels, self.stage)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """The cells of each image, row by row."""
        return in_batches_of_one_shape(images, self._regions)

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, 3, H, W) uint8 to the features (B, R, D) and boxes (R, 4) of their cells, row by row."""
        maps = self.feature_map(pixels)
        boxes = cell_boxes(*maps.shape[2:]).to(maps)
        features = maps.flatten(2).transpose(1, 2)
        if self.coordinates:
            geometry = self.coordinate_scale * coordinates(boxes)
            features = torch.cat([features, geometry.expand(features.shape[0], -1, -1)], dim=2)
        return features, boxes

    def _regions(self, pixels: Tensor) -> list[ImageRegions]:
        features, boxes = self.cells(pixels)
        return [ImageRegions(cells, boxes) for cells in features]

    @cached_property
    def map_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the map of a square image."""
        side = self.backbone.size
        with torch.inference_mode():
            shape = self.feature_map(torch.zeros(1, 3, side, side, dtype=torch.uint8)).shape
        return shape[1], shape[2], shape[3]
