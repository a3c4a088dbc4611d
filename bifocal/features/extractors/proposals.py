"""Class-agnostic boxes and their features, for phrase localization."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.preprocessing import Resize, resized
from bifocal.backbones.timm import TimmBackbone
from bifocal.features.base import ImageRegions, in_batches_of_one_shape
from bifocal.features.extractors.grid import Grid

POOLED = 7


class Proposals:
    """Boxes of selective search, described by RoIAlign on a map of a timm backbone.

    Uijlings et al., "Selective search for object recognition", IJCV 2013, in opencv-contrib, whose order is random:
    here the largest come first, each unless a larger one overlaps it by more than ``overlap``. Of the objects in 40
    COCO images (those of more than 32 x 32 pixels) 58 % have one of 100 boxes at an intersection over union of one
    half; 83 % have one of all 716, 48 % one of 100 at random. The features are the mean of 7 x 7 bins.

    Args:
        backbone: name of a timm model.
        stage: of the backbone, from 0, as timm's ``feature_info`` counts.
        regions: R, the most boxes of an image (Wang et al. and Plummer et al. take 100).
        overlap: intersection over union.
        search_size: pixels, of the largest side of the image that is searched.
        size, resize: of the image that the backbone sees, see ``Grid``.
        mean, std: of each channel, of pixels in [0, 1]; None for those that timm states for the weights.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Raises:
        ValueError: timm has no such model.
    """

    def __init__(
        self,
        backbone: str = "vgg19",
        stage: int = 4,
        regions: int = 100,
        overlap: float = 0.5,
        search_size: int = 300,
        size: int = 600,
        resize: Resize = "aspect",
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        self.backbone = TimmBackbone(backbone, size, resize, mean, std, model_arguments)
        self.backbone.check_stage(stage)
        self.stage, self.regions, self.overlap, self.search_size = stage, regions, overlap, search_size

    @cached_property
    def dim(self) -> int:
        """D, channels of the map."""
        channels: int = self.backbone.network.feature_info[self.stage]["num_chs"]
        return channels

    def describe(self) -> dict[str, Any]:
        """Backbone, layer and search."""
        return self.backbone.describe() | {
            "layer": f"stage {self.stage}",
            "overlap": self.overlap,
            "search_size": self.search_size,
        }

    def grid(self) -> Grid:
        """The cells of the map that the boxes are pooled from, of the same network: what pretraining learns on."""
        backbone = self.backbone
        cells = Grid(
            backbone.name, self.stage, backbone.size, backbone.resize, model_arguments=backbone.model_arguments
        )
        cells.backbone = backbone
        return cells

    def preprocess(self, image: Image.Image) -> tuple[Tensor, Tensor]:
        """Pixels for the backbone, uint8 (3, H, W), and the boxes (r, 4), relative."""
        return self.backbone.preprocess(image), self._boxes(image)

    def extract(self, images: Sequence[tuple[Tensor, Tensor]]) -> list[ImageRegions]:
        """The boxes of each image with their features, the largest first."""
        maps = in_batches_of_one_shape(
            [pixels for pixels, _ in images], lambda pixels: list(self.backbone.feature_map(pixels, self.stage))
        )
        return [
            ImageRegions(_pooled(features.float(), boxes), boxes)
            for features, (_, boxes) in zip(maps, images, strict=True)
        ]

    def _boxes(self, image: Image.Image) -> Tensor:
        from torchvision.ops import nms  # here, because it takes seconds to load

        small = resized(image, self.search_size, "aspect", "bicubic")
        found = torch.from_numpy(selective_search(np.asarray(small)) / np.tile(small.size, 2)).float()
        areas = (found[:, 2:] - found[:, :2]).prod(dim=1)
        return found[nms(found, areas, self.overlap)[: self.regions]]


def selective_search(pixels: np.ndarray) -> np.ndarray:
    """Boxes (n, 4) x0 y0 x1 y1 in pixels of an RGB image (H, W, 3) uint8, sorted; the whole image is one of them.

    Raises:
        ModuleNotFoundError: OpenCV has no selective search here; says what to install.
    """
    try:
        from cv2.ximgproc import segmentation
    except ImportError as error:
        raise ModuleNotFoundError(
            "Proposals needs selective search, which OpenCV has in its contributed modules: "
            "pip install opencv-contrib-python-headless"
        ) from error
    search = segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(np.ascontiguousarray(pixels[:, :, ::-1]))
    search.switchToSelectiveSearchFast()
    corners = np.asarray(search.process())
    height, width = pixels.shape[:2]
    boxes = np.concatenate([corners[:, :2], corners[:, :2] + corners[:, 2:]], axis=1)
    return np.unique(np.concatenate([boxes, [[0, 0, width, height]]]), axis=0)


def _pooled(features: Tensor, boxes: Tensor) -> Tensor:
    """Mean features (r, C) of a map (C, h, w) in relative boxes (r, 4)."""
    from torchvision.ops import roi_align

    height, width = features.shape[1:]
    scaled = boxes.to(features) * features.new_tensor([width, height, width, height])
    pooled: Tensor = roi_align(features.unsqueeze(0), [scaled], output_size=POOLED, aligned=True)
    return pooled.mean(dim=(2, 3))
