"""Bottom-up attention on the user's own images: regions of a Faster R-CNN that was trained on
Visual Genome."""

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.base import to_pixels
from bifocal.backbones.detectors.bottom_up import BottomUpBackbone, resize
from bifocal.features.base import ImageRegions

CLASS_OVERLAP = 0.3


class BottomUp:
    """The best regions of the detector of bottom-up attention, with the features that classify them
    (pool5).

    Anderson et al., "Bottom-up and top-down attention", CVPR 2018, section 3.1, after their code:
    300 proposals of the region proposal network, which are not refined; non-maximum suppression for
    each class; the score of a region is its highest class probability after the suppression.
    ``BottomUpTSV`` reads the features that they published for COCO.
    Weights: ``FromFile`` with the result of ``python -m pipelines convert bottom-up``.

    Args:
        regions: R, the maximum number of regions per image.
        min_regions: minimum number of regions; more, up to R, are kept if their scores reach
            ``min_score``. None to keep R regardless of their scores. An image has fewer regions if
            it has fewer proposals.
        min_score: minimum class probability of a region beyond ``min_regions``.
        size: pixels of the shorter side of the resized image.
        max_size: maximum pixels of its longer side.
        model_arguments: of ``bifocal.backbones.detectors.bottom_up.BottomUpNetwork``.

    Example:
        >>> small = {"blocks": [1, 1, 1, 1], "width": 4, "classes": 5}
        >>> extractor = BottomUp(regions=2, size=64, model_arguments=small)
        >>> (image,) = extractor.extract([torch.zeros(3, 48, 64, dtype=torch.uint8)])
        >>> image.features.shape, image.boxes.shape
        (torch.Size([2, 128]), torch.Size([2, 4]))
    """

    keeps_weights = False
    decoded_side = None

    def __init__(
        self,
        regions: int = 36,
        min_regions: int | None = None,
        min_score: float = 0.2,
        size: int = 600,
        max_size: int = 1000,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        self.backbone = BottomUpBackbone(model_arguments or {})
        self.regions, self.min_regions = regions, regions if min_regions is None else min_regions
        self.min_score, self.size, self.max_size = min_score, size, max_size

    @property
    def dim(self) -> int:
        return self.backbone.network.cls_score.in_features

    def describe(self) -> dict[str, Any]:
        return self.backbone.describe() | {
            "layer": "pool5",
            "preprocessing": {"size": self.size, "max_size": self.max_size},
            "min_regions": self.min_regions,
            "min_score": self.min_score,
        }

    def preprocess(self, image: Image.Image) -> Tensor:
        """Return the pixels (3, H, W) uint8 of the image; the network resizes it."""
        return to_pixels(image)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """Return the regions of each image in order of decreasing score."""
        return [self._extract(image) for image in images]

    def _extract(self, image: Tensor) -> ImageRegions:
        network = self.backbone.network
        pixels, scale = resize(image.to(network.cls_score.weight.device), self.size, self.max_size)
        height, width = pixels.shape[2:]
        maps = network(pixels)
        boxes = network.proposals(maps, height, width, scale)
        features, probabilities = network.regions(maps, boxes)
        scores, order = class_scores(boxes / scale, probabilities).sort(
            descending=True, stable=True
        )
        count = min(max(int((scores >= self.min_score).sum()), self.min_regions), self.regions)
        best = order[:count]
        sides = boxes.new_tensor([image.shape[2], image.shape[1]] * 2) * scale
        return ImageRegions(features[best], boxes[best] / sides, scores[:count])


def class_scores(boxes: Tensor, probabilities: Tensor) -> Tensor:
    """Return the highest probability (P,) of each box (P, 4) among classes in which it survives
    suppression, or 0."""
    from torchvision.ops import box_iou  # imported here: it takes seconds

    # The boxes of all classes are the same, so that all classes take a step of the greedy
    # suppression together.
    last_pixels = boxes + boxes.new_tensor([0, 0, 1, 1])
    overlapping = box_iou(last_pixels, last_pixels) > CLASS_OVERLAP
    scores = probabilities[:, 1:].T.float()
    order = scores.argsort(dim=1, descending=True, stable=True)
    removed, kept = torch.zeros_like(scores, dtype=torch.bool), torch.zeros_like(scores)
    rows = torch.arange(len(scores), device=scores.device)
    for box in order.T:
        present = ~removed[rows, box]
        kept[rows, box] = scores[rows, box] * present
        removed |= overlapping[box] & present.unsqueeze(1)
    return kept.amax(dim=0)
