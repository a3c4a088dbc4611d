"""Region features: the best boxes of a detector with the features of its head."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.base import map_by_shape, to_pixels
from bifocal.backbones.detectors.detector import Detector, detect, head_maps
from bifocal.features.base import ImageRegions


class Regions:
    """Best boxes of a torchvision detector after non-maximum suppression, with its head's features.

    Anderson et al., "Bottom-up and top-down attention", CVPR 2018, section 3.1: a proposal is
    scored by its best class and refined for that class; it is kept unless a box of higher score
    overlaps it by more than ``overlap``. The features belong to the refined box: fc7 of Faster
    R-CNN, Mask R-CNN and Keypoint R-CNN. RetinaNet, FCOS and SSD have no head for boxes: see
    ``bifocal.backbones.detectors.detector`` for their features.

    Args:
        detector: name of a detector in torchvision ("fasterrcnn_resnet50_fpn_v2",
            "retinanet_resnet50_fpn_v2").
        regions: R, the maximum number of regions per image.
        min_regions: minimum number of regions; more, up to R, are kept if their scores reach
            ``min_score``. None to keep R regardless of their scores. An image has fewer regions if
            fewer survive the suppression.
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
        self.backbone = Detector(detector, model_arguments or {})
        self.regions, self.min_regions = regions, regions if min_regions is None else min_regions
        self.min_score, self.overlap = min_score, overlap

    @cached_property
    def dim(self) -> int:
        """D: dimension of the box head's last layer, or of the maps that regions are pooled
        from."""
        if self.backbone.two_stage:
            return cast(int, self._network.roi_heads.box_predictor.cls_score.in_features)
        with torch.inference_mode():
            blank = torch.zeros(1, 3, 256, 256, device=next(self._network.parameters()).device)
            return next(iter(head_maps(self._network, blank).values())).shape[1]

    @property
    def _network(self) -> Any:
        return self.backbone.network

    def describe(self) -> dict[str, Any]:
        return self.backbone.describe() | {
            "layer": "fc7" if self.backbone.two_stage else "head",
            "min_regions": self.min_regions,
            "min_score": self.min_score,
            "overlap": self.overlap,
        }

    def preprocess(self, image: Image.Image) -> Tensor:
        """Return the pixels (3, H, W) uint8 of the image; the detector resizes it."""
        return to_pixels(image)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """Return the regions of each image in order of decreasing score."""
        # torchvision pads the images of a batch to one shape, which changes their features: batch
        # equal shapes only.
        return map_by_shape(images, self._extract_equal_shapes)

    def _extract_equal_shapes(self, images: Tensor) -> list[ImageRegions]:
        network = self._network
        pixels = list(images.to(next(network.parameters()).device).float() / 255)
        if not self.backbone.two_stage:
            return [
                self._kept(*found) for found in detect(network, pixels, self.overlap, self.regions)
            ]
        resized, _ = network.transform(pixels)
        maps = network.backbone(resized.tensors)
        proposals, _ = network.rpn(resized, maps)
        heads, sizes = network.roi_heads, resized.image_sizes
        logits, refinements = heads.box_predictor(
            heads.box_head(heads.box_roi_pool(maps, proposals, sizes))
        )
        counts = [len(boxes) for boxes in proposals]
        refined = heads.box_coder.decode(refinements, proposals).split(counts)
        selected = [
            self._select(boxes, probabilities, size)
            for boxes, probabilities, size in zip(
                refined, logits.softmax(dim=1).split(counts), sizes, strict=True
            )
        ]
        pooled = heads.box_roi_pool(maps, [boxes for boxes, _ in selected], sizes)
        features = heads.box_head(pooled).split([len(scores) for _, scores in selected])
        return [
            ImageRegions(vectors, boxes / boxes.new_tensor([width, height, width, height]), scores)
            for vectors, (boxes, scores), (height, width) in zip(
                features, selected, sizes, strict=True
            )
        ]

    def _select(
        self, boxes: Tensor, probabilities: Tensor, size: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Return the best boxes (n, 4) and scores (n,) of (m, classes, 4) with probabilities (m,
        classes)."""
        from torchvision.ops import clip_boxes_to_image, nms

        scores, classes = probabilities[:, 1:].max(dim=1)  # class 0 is the background
        boxes = clip_boxes_to_image(boxes[torch.arange(len(boxes)), classes + 1], size)
        best = nms(boxes, scores, self.overlap)[: self.regions]
        best = best[: self._count(scores[best])]
        return boxes[best], scores[best]

    def _kept(self, boxes: Tensor, scores: Tensor, features: Tensor) -> ImageRegions:
        count = self._count(scores)
        return ImageRegions(features[:count], boxes[:count], scores[:count])

    def _count(self, scores: Tensor) -> int:
        return max(int((scores >= self.min_score).sum()), self.min_regions)
