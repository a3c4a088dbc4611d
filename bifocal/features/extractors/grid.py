"""Grid features: the cells of a feature map as regions."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bifocal.features.boxes import CellExtractor, cells_of, coordinates, mirrored
from bifocal.features.extractors.base import TimmExtractor
from bifocal.onnx.pixels import ResizeOrCrop


class Grid(TimmExtractor, CellExtractor):
    """Cells of a timm feature map as regions; a cell's box is its share of the image.

    The cells of a vision transformer are the tokens of its patches after the last normalization,
    without class tokens and registers. Images are resized and cropped as timm states for the
    weights, unless ``size`` or ``resize`` say otherwise.

    Further arguments: see ``TimmExtractor``.

    Args:
        stage: stage of the backbone, counted from 0 as in timm's ``feature_info``, or the name of a
            layer; None for ``forward_features``.
        mirror: add the cells of the mirrored image, as further regions with their boxes in the
            image.
        classifier: keep the classifier with the weights, for a pointing head.
        coordinates: append the cell's x0 y0 x1 y1, width, height and area, times
            ``coordinate_scale``.
        coordinate_scale: factor that brings coordinates to the scale of the other features.

    Raises:
        ValueError: timm has no such model, its features are not a map, or it takes images of
            another size.

    Example:
        >>> grid = Grid("resnet10t", stage=3, size=64)
        >>> (image,) = grid.extract([torch.zeros(3, 64, 64, dtype=torch.uint8)])
        >>> image.features.shape, image.boxes.shape
        (torch.Size([16, 256]), torch.Size([16, 4]))
    """

    keeps_weights = True

    def __init__(
        self,
        backbone: str = "resnet152.tv_in1k",
        stage: int | str | None = None,
        size: int | None = None,
        resize: ResizeOrCrop | None = None,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        mirror: bool = False,
        classifier: bool = False,
        coordinates: bool = False,
        coordinate_scale: float = 1.0,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            backbone, size, resize, mean, std, model_arguments, with_classifier=classifier
        )
        self.backbone.check_size()
        self.stage, self.mirror = stage, mirror
        self.coordinates, self.coordinate_scale = coordinates, coordinate_scale
        if isinstance(stage, str):
            self.backbone.check_layers([stage])
            self.tapped = [stage]
        elif stage is not None:
            self.backbone.check_stage(stage)

    @property
    def regions(self) -> int:
        """R: number of cells in the largest map, which a square image has."""
        _, rows, columns = self.map_shape
        return (1 + self.mirror) * rows * columns

    @property
    def dim(self) -> int:
        """D: number of channels, plus 7 coordinates if requested."""
        return self.map_shape[0] + 7 * self.coordinates

    @cached_property
    def map_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the map of a square image."""
        with torch.inference_mode():
            shape = self.feature_map(self.backbone.blank_image()).shape
        return shape[1], shape[2], shape[3]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "layer": f"stage {self.stage}"
            if isinstance(self.stage, int)
            else self.stage or "forward_features",
            "mirror": self.mirror,
            "coordinates": self.coordinate_scale if self.coordinates else None,
        }

    def grid(self) -> "Grid":
        """Return the extractor whose feature map a backbone is trained on, see ``TrainOnPhrases``:
        this one."""
        return self

    def feature_map(self, pixels: Tensor) -> Tensor:
        """Map images (B, 3, H, W) uint8 to the feature map (B, C, h, w)."""
        if isinstance(self.stage, str):
            return self.backbone.layer_maps(pixels, [self.stage])[0]
        return self.backbone.feature_map(pixels, self.stage)

    def cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (B, 3, H, W) uint8 to features (B, R, D) and boxes (R, 4) of their cells, row
        by row."""
        maps = self.feature_map(pixels)
        features, boxes = cells_of(maps)
        if self.mirror:
            others = self.feature_map(pixels.flip(3)).flatten(2).transpose(1, 2)
            features, boxes = (
                torch.cat([features, others], dim=1),
                torch.cat([boxes, mirrored(boxes)]),
            )
        if self.coordinates:
            geometry = self.coordinate_scale * coordinates(boxes)
            features = torch.cat([features, geometry.expand(features.shape[0], -1, -1)], dim=2)
        return features, boxes
