"""Region features: the best boxes of a detector with the features of its box head."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.faster_rcnn import FasterRCNN
from bifocal.backbones.preprocessing import map_by_shape, to_pixels
from bifocal.features.base import ImageRegions


class Regions:
    """The best boxes of a torchvision Faster R-CNN after non-maximum suppression, with their box-head features (fc7).

    Anderson et al., "Bottom-up and top-down attention", CVPR 2018, section 3.1: a proposal is scored by its best class
    and refined for that class; it is kept unless a box of higher score overlaps it by more than ``overlap``. The
    features are those of the refined box.

    Args:
        detector: name of a Faster R-CNN in torchvision ("fasterrcnn_resnet50_fpn_v2").
        regions: R, the maximum number of regions per image.
        min_regions: minimum number of regions; more, up to R, are kept if their scores reach ``min_score``. None to
            keep R regardless of their scores. An image has fewer regions if fewer survive the suppression.
        min_score: minimum class probability of a region beyond ``min_regions``.
        overlap: intersection over union.
        model_arguments: further keyword arguments of the detector, such as num_classes or min_size.

    Raises:
        ValueError: torchvision has no such detector.
    """

    keeps_weights = False
    decoded_side = None

    def __init__(
        self,
        detector: str = "fasterrcnn_resnet50_fpn_v2",
        regions: int = 36,
        min_regions: int | None = None,
        min_score: float = 0.2,
        overlap: float = 0.5,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        self.backbone = FasterRCNN(detector, model_arguments or {})
        self.regions, self.min_regions = regions, regions if min_regions is None else min_regions
        self.min_score, self.overlap = min_score, overlap

    @property
    def dim(self) -> int:
        """D: dimension of the box head's last layer."""
        return cast(int, self.backbone.network.roi_heads.box_predictor.cls_score.in_features)

    def describe(self) -> dict[str, Any]:
        """Return detector, layer and selection of boxes."""
        return self.backbone.describe() | {
            "layer": "fc7",
            "min_regions": self.min_regions,
            "min_score": self.min_score,
            "overlap": self.overlap,
        }

    def preprocess(self, image: Image.Image) -> Tensor:
        """Return the pixels (3, H, W) uint8 of the image; the detector resizes it."""
        return to_pixels(image)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """Return the regions of each image in order of decreasing score."""
        # torchvision pads the images of a batch to one shape, which changes their features: batch equal shapes only.
        return map_by_shape(images, self._extract_equal_shapes)

    def _extract_equal_shapes(self, images: Tensor) -> list[ImageRegions]:
        network = self.backbone.network
        device = next(network.parameters()).device
        resized, _ = network.transform(list(images.to(device).float() / 255))
        maps = network.backbone(resized.tensors)
        proposals, _ = network.rpn(resized, maps)
        heads, sizes = network.roi_heads, resized.image_sizes
        logits, refinements = heads.box_predictor(heads.box_head(heads.box_roi_pool(maps, proposals, sizes)))
        counts = [len(boxes) for boxes in proposals]
        refined = heads.box_coder.decode(refinements, proposals).split(counts)
        selected = [
            self._select(boxes, probabilities, size)
            for boxes, probabilities, size in zip(refined, logits.softmax(dim=1).split(counts), sizes, strict=True)
        ]
        pooled = heads.box_roi_pool(maps, [boxes for boxes, _ in selected], sizes)
        features = heads.box_head(pooled).split([len(scores) for _, scores in selected])
        return [
            ImageRegions(vectors, boxes / boxes.new_tensor([width, height, width, height]), scores)
            for vectors, (boxes, scores), (height, width) in zip(features, selected, sizes, strict=True)
        ]

    def _select(self, boxes: Tensor, probabilities: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Select the best regions of an image.

        Shape:
            boxes (m, classes, 4), probabilities (m, classes) -> boxes (n, 4) and scores (n,).
        """
        from torchvision.ops import clip_boxes_to_image, nms

        scores, classes = probabilities[:, 1:].max(dim=1)  # class 0 is the background
        boxes = clip_boxes_to_image(boxes[torch.arange(len(boxes)), classes + 1], size)
        best = nms(boxes, scores, self.overlap)[: self.regions]
        count = int((scores[best] >= self.min_score).sum())
        best = best[: max(count, self.min_regions)]
        return boxes[best], scores[best]
