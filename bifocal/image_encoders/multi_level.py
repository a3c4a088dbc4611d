"""Multi-level visual mapping: the cells of several layers in one joint space."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from bifocal.backbones.timm.trainable import EVAL_BATCH_SIZE, FrozenLayers, resize_for_eval
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders.base import ImageEncoder
from bifocal.layers import mapping
from bifocal.localization.base import RegionVectors
from bifocal.localization.multi_level import MultiLevelHeatmap


class MultiLevelEncoder(ImageEncoder):
    """Three 1 x 1 convolutions for each level of a frozen backbone, a LeakyReLU after each, and l2.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR
    2019, section 3.1. The paper does not say whether a LeakyReLU follows the last convolution; here
    it does, as in the authors' code.

    Without a backbone it reads the features of the extractor MultiLevel, which are already
    interpolated to M x M cells, level by level. With a backbone it reads pixels (extractor
    ImageFiles or Pixels), so levels of different widths are neither padded nor stored: the frozen
    backbone runs in every step. The first convolution then precedes the bilinear interpolation,
    with the same result: both are linear, and the weights of an interpolation sum to 1.

    Args:
        input_dim: D, channels of the levels of stored features; 3 for pixels.
        dim: d, dimension of the joint space.
        levels: L.
        slope: alpha of LeakyReLU.
        convolutions: number of 1 x 1 convolutions; 1 is a linear mapping, the ablation NLV of table
            3.
        backbone: name of a timm model; None to read stored features.
        layers: names of L modules of the backbone, from low to high.
        cells: M, cells per side of a backbone's levels.
        image_size: pixels, side of the square that a backbone's images are resized to.
        model_arguments: further keyword arguments of ``timm.create_model``.

    Shape:
        features (B, L N, D) and mask (B, L N) bool, or pixels (B, 3, H, W) 0 to 255 and mask (B, H,
        W) bool -> (B, L, N, d), N = M x M cells, of unit norm; zero where the mask of stored
        features is false.

    Raises:
        ValueError: the number of layers is not L, or ``input_dim`` does not fit the backbone.

    Example:
        >>> encoder = MultiLevelEncoder(input_dim=3, dim=4, levels=2)
        >>> encoder(torch.rand(1, 8, 3), torch.ones(1, 8, dtype=torch.bool)).shape
        torch.Size([1, 2, 4, 4])
    """

    single_vector = False

    def __init__(
        self,
        input_dim: int = 512,
        dim: int = 1024,
        levels: int = 4,
        slope: float = 0.25,
        convolutions: int = 3,
        backbone: str | None = None,
        layers: Sequence[str] = (),
        cells: int = 19,
        image_size: int = 300,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(input_dim, dim)
        self.cells, self.image_size = cells, image_size
        self.backbone: FrozenLayers | None = None
        channels = [input_dim] * levels
        if backbone is not None:
            if len(layers) != levels:
                raise ValueError(
                    f"{levels} levels and {len(layers)} layers of {backbone}: expected as many "
                    "of both"
                )
            if input_dim != 3:
                raise ValueError(
                    f"the backbone {backbone} reads pixels, of 3 channels, and the features "
                    f"have {input_dim}: extract features with ImageFiles, or set backbone to "
                    "None (null) to read stored features"
                )
            self.backbone = FrozenLayers(backbone, layers, image_size, model_arguments)
            channels = self.backbone.channels
            self.reads_pixels, self.onnx_image_size = True, image_size
        self.levels = nn.ModuleList(mapping(width, dim, convolutions, slope) for width in channels)
        self.levels_per_image = levels

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.level_cells(features, mask)

    def level_cells(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the cells (B, L, N, d) in the joint space."""
        if self.backbone is not None:
            images = torch.stack(resize_for_eval(features, mask, "stretch", self.image_size))
            return torch.cat([self.embed_pixels(part) for part in images.split(EVAL_BATCH_SIZE)])
        levels = len(self.levels)
        if features.shape[1] % levels:
            raise ValueError(
                f"features {tuple(features.shape)} have {features.shape[1]} cells, not a "
                f"multiple of {levels} levels: extract features with MultiLevel, and set "
                "levels to the number of its layers"
            )
        by_level = features.unflatten(1, (levels, -1)).unbind(dim=1)
        mapped = [level(cells) for level, cells in zip(self.levels, by_level, strict=True)]
        present: Tensor = mask.unflatten(1, (levels, -1)).unsqueeze(3)
        cells: Tensor = normalize(torch.stack(mapped, dim=1), dim=3) * present
        return cells

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Return the cells (B, L, N, d) of square images (B, 3, image_size, image_size)."""
        if self.backbone is None:
            return super().embed_pixels(pixels)
        levels = zip(cast(Sequence[nn.Sequential], self.levels), self.backbone(pixels), strict=True)
        mapped = [self._mapped(level, maps.to(pixels.dtype)) for level, maps in levels]
        return normalize(torch.stack(mapped, dim=1), dim=3)

    def _mapped(self, level: nn.Sequential, maps: Tensor) -> Tensor:
        """Return the cells (B, N, d) of a level's maps (B, C, h, w), before they are normalized."""
        mapped: Tensor = level[0](maps.movedim(1, 3)).movedim(3, 1)
        resampled = interpolate(
            mapped, size=(self.cells, self.cells), mode="bilinear", align_corners=False
        )
        cells: Tensor = level[1:](resampled.flatten(2).transpose(1, 2))
        return cells

    def region_vectors(self, regions: RegionBatch) -> RegionVectors:
        """Return the cells of all levels (B, L, N, d); the levels share the mask and the boxes."""
        cells = self.level_cells(self.to_dtype(regions.features), regions.mask)
        count = cells.shape[2]
        if not self.reads_pixels:
            return RegionVectors(cells, regions.mask[:, :count], regions.boxes[:, :count])
        boxes = cell_boxes(self.cells, self.cells).to(cells).expand(len(cells), -1, -1)
        return RegionVectors(cells, boxes.new_ones(boxes.shape[:2], dtype=torch.bool), boxes)

    def keeps_square(self, size: int) -> bool:
        return self.reads_pixels and size == self.image_size

    def localizer(self) -> MultiLevelHeatmap:
        """Return the localizer of section 4.3."""
        return MultiLevelHeatmap()

    def load_pretrained(self, directory: Path) -> None:
        """Load the backbone, if there is one, from a directory of extracted features."""
        if self.backbone is not None:
            self.backbone.load_pretrained(directory)
