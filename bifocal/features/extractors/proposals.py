"""Class-agnostic boxes with their features, for phrase localization."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.base import map_by_shape
from bifocal.features.base import ImageRegions
from bifocal.features.extractors.base import TimmExtractor
from bifocal.features.extractors.grid import Grid
from bifocal.onnx.pixels import Resize, resize_image

POOLED_SIZE = 7
Head = Literal["mean", "fc7"]
"""Features of the 7 x 7 bins of a box: their mean, or the output of the network's layers before the
classifier."""


class Proposals(TimmExtractor):
    """Boxes of selective search, with features that RoIAlign pools from a map of a timm backbone.

    Uijlings et al., "Selective search for object recognition", IJCV 2013, in opencv-contrib, whose
    order is random: here boxes are taken in order of decreasing area; a box is skipped if a larger
    one overlaps it by more than ``overlap``. Measured on 40 COCO images, objects of more than 32 x
    32 pixels, intersection over union of at least one half: 100 such boxes cover 58 % of the
    objects, all 716 boxes 83 %, 100 random ones 48 %.

    Wang, Li, Lazebnik, CVPR 2016, section 3.3, train on the ground-truth boxes of phrases: with
    ``truth_regions``, the features of the training images' boxes are stored too
    (``FeatureStore.gather_regions``). Evaluation sees the boxes of selective search only.

    Further arguments: see ``TimmExtractor``.

    Args:
        stage: stage of the backbone, counted from 0 as in timm's ``feature_info``.
        regions: maximum number of proposals per image (Wang et al. and Plummer et al. use 100).
        head: features of the 7 x 7 bins of a box: "mean", or "fc7", the output of the layers before
            the classifier of VGG, as in Fast R-CNN (Girshick, ICCV 2015): 4096 activations with
            ``stage`` 4 of VGG-19.
        truth_regions: maximum number of ground-truth boxes per training image.
        overlap: intersection over union.
        search_size: longer side, in pixels, of the image that selective search runs on.

    Raises:
        ValueError: timm has no such model.
    """

    def __init__(
        self,
        backbone: str = "vgg19.tv_in1k",
        stage: int = 4,
        regions: int = 100,
        head: Head = "mean",
        truth_regions: int = 0,
        overlap: float = 0.5,
        search_size: int = 300,
        size: int = 600,
        resize: Resize = "aspect",
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, size, resize, mean, std, model_arguments)
        self.backbone.check_stage(stage)
        self.stage, self.head, self.overlap, self.search_size = stage, head, overlap, search_size
        self.proposals, self.truth_regions = regions, truth_regions
        self.regions = regions + truth_regions

    @property
    def decoded_side(self) -> None:
        """None: selective search sees the full resolution."""
        return None

    @cached_property
    def dim(self) -> int:
        """D: number of channels in the map, or in the layer before the classifier."""
        channels: int = self.backbone.network.feature_info[self.stage]["num_chs"]
        with torch.inference_mode():
            return self._features(
                torch.zeros(1, channels, POOLED_SIZE, POOLED_SIZE).to(self.backbone.device)
            ).shape[1]

    def describe(self) -> dict[str, Any]:
        truth = {"truth_regions": self.truth_regions} if self.truth_regions else {}
        return (
            super().describe()
            | truth
            | {
                "layer": f"stage {self.stage}"
                if self.head == "mean"
                else f"fc7 of stage {self.stage}",
                "overlap": self.overlap,
                "search_size": self.search_size,
            }
        )

    def grid(self) -> Grid:
        """Return the extractor, of the same network, whose map a backbone is trained on, see
        ``TrainOnPhrases``."""
        config = self.backbone.config
        grid = Grid(
            config.backbone,
            self.stage,
            config.size,
            config.resize,
            model_arguments=config.model_arguments,
        )
        grid.backbone = self.backbone
        return grid

    def preprocess(
        self, image: Image.Image, truth: Tensor | None = None
    ) -> tuple[Tensor, Tensor, int]:
        """Return the pixels (3, H, W) uint8 for the backbone, the relative boxes (r, 4), and the
        number of true boxes.

        Args:
            truth: ground-truth boxes (t, 4), relative to the sides of the image; they are the last
                of the boxes.
        """
        given = torch.empty(0, 4) if truth is None else truth
        return self.backbone.preprocess(image), torch.cat([self._boxes(image), given]), len(given)

    def extract(self, images: Sequence[tuple[Tensor, Tensor, int]]) -> list[ImageRegions]:
        """Return the boxes of each image with their features: proposals by decreasing area, then
        true boxes."""
        maps = map_by_shape(
            [pixels for pixels, _, _ in images],
            lambda pixels: list(self.backbone.feature_map(pixels, self.stage)),
        )
        return [
            ImageRegions(self._features(_pool(features.float(), boxes)), boxes, truth=truth)
            for features, (_, boxes, truth) in zip(maps, images, strict=True)
        ]

    def _features(self, pooled: Tensor) -> Tensor:
        if self.head == "mean":
            return pooled.mean(dim=(2, 3))
        features: Tensor = self.backbone.network.forward_head(pooled, pre_logits=True)
        return features

    def _boxes(self, image: Image.Image) -> Tensor:
        from torchvision.ops import nms  # imported here: it takes seconds

        small = resize_image(image, self.search_size, "aspect", "bicubic")
        boxes = torch.from_numpy(
            selective_search(np.asarray(small)) / np.tile(small.size, 2)
        ).float()
        areas = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)
        return boxes[nms(boxes, areas, self.overlap)[: self.proposals]]


def selective_search(pixels: np.ndarray) -> np.ndarray:
    """Return the sorted boxes (n, 4) of selective search in pixels (H, W, 3) uint8, with the whole
    image."""
    try:
        from cv2.ximgproc import segmentation
    except ImportError as error:
        raise ModuleNotFoundError(
            "Proposals needs selective search, which is in OpenCV's contributed modules: "
            "pip install opencv-contrib-python-headless"
        ) from error
    search = segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(np.ascontiguousarray(pixels[:, :, ::-1]))
    search.switchToSelectiveSearchFast()
    corners = np.asarray(search.process())
    height, width = pixels.shape[:2]
    boxes = np.concatenate([corners[:, :2], corners[:, :2] + corners[:, 2:]], axis=1)
    return np.unique(np.concatenate([boxes, [[0, 0, width, height]]]), axis=0)


def _pool(features: Tensor, boxes: Tensor) -> Tensor:
    """Pool a map (C, h, w) in relative boxes (r, 4) to bins (r, C, 7, 7)."""
    from torchvision.ops import roi_align

    height, width = features.shape[1:]
    scaled = boxes.to(features) * features.new_tensor([width, height, width, height])
    pooled: Tensor = roi_align(
        features.unsqueeze(0), [scaled], output_size=POOLED_SIZE, aligned=True
    )
    return pooled
