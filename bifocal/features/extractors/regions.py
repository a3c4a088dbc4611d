"""Region features: the best boxes of a detector, and what its box head says of them."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.preprocessing import to_pixels
from bifocal.features.base import ImageRegions
from bifocal.registry import suggest


class FasterRCNN:
    """A Faster R-CNN of torchvision; frozen, with random weights.

    Raises:
        ValueError: torchvision has no such detector.
    """

    head = ""

    def __init__(self, name: str, model_arguments: dict[str, Any]) -> None:
        # torchvision is imported where it is used: it takes seconds to load, and whoever reads a store does without it.
        from torchvision.models import get_model, list_models

        if not name.startswith("fasterrcnn") or name not in list_models():
            raise ValueError(
                f"Regions needs a Faster R-CNN of torchvision, not {name!r}; "
                f"{suggest(name, [known for known in list_models() if known.startswith('fasterrcnn')])}"
            )
        self.name, self.model_arguments = name, model_arguments
        self.network = get_model(name, weights=None, weights_backbone=None, **model_arguments)
        self.network = self.network.eval().requires_grad_(False)

    def describe(self) -> dict[str, Any]:
        """Name and arguments."""
        return {"backbone": self.name, "model_arguments": self.model_arguments}

    def pretrained(self) -> dict[str, Tensor]:
        """torchvision's weights of this detector."""
        from torchvision.models import get_model

        model = get_model(self.name, weights="DEFAULT", **self.model_arguments)
        return cast(dict[str, Tensor], model.state_dict())

    def address(self) -> str:
        """The file that torchvision downloads."""
        from torchvision.models import get_model_weights

        return cast(str, get_model_weights(self.name).DEFAULT.url)


class Regions:
    """The best boxes of a torchvision Faster R-CNN after non-maximum suppression, with their box-head features (fc7).

    Anderson et al., "Bottom-up and top-down attention", CVPR 2018, section 3.1: a proposal is scored by its best class,
    refined for that class, and kept if no better one overlaps it by more than ``overlap``. The features are those of
    the refined box.

    Args:
        detector: name of a Faster R-CNN in torchvision ("fasterrcnn_resnet50_fpn_v2").
        regions: R, the most regions of an image.
        min_regions: keep fewer than R, but so many, where scores are below ``min_score``; None for always R, of
            which there are fewer only if fewer survive.
        min_score: probability of a class, for a region beyond ``min_regions``.
        overlap: intersection over union.
        model_arguments: more keyword arguments of the detector, such as num_classes or min_size.

    Raises:
        ValueError: torchvision has no such detector.
    """

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
        """D, of the box head's last layer."""
        return cast(int, self.backbone.network.roi_heads.box_predictor.cls_score.in_features)

    def describe(self) -> dict[str, Any]:
        """Detector, layer and selection."""
        return self.backbone.describe() | {
            "layer": "fc7",
            "min_regions": self.min_regions,
            "min_score": self.min_score,
            "overlap": self.overlap,
        }

    def preprocess(self, image: Image.Image) -> Tensor:
        """The image as it is: the detector resizes it."""
        return to_pixels(image)

    def extract(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """The best regions of each image, the best first."""
        network = self.backbone.network
        device = next(network.parameters()).device
        resized, _ = network.transform([image.to(device).float() / 255 for image in images])
        maps = network.backbone(resized.tensors)
        proposals, _ = network.rpn(resized, maps)
        heads, sizes = network.roi_heads, resized.image_sizes
        logits, refinements = heads.box_predictor(heads.box_head(heads.box_roi_pool(maps, proposals, sizes)))
        counts = [len(found) for found in proposals]
        refined = heads.box_coder.decode(refinements, proposals).split(counts)
        chosen = [
            self._choose(boxes, probabilities, size)
            for boxes, probabilities, size in zip(refined, logits.softmax(dim=1).split(counts), sizes, strict=True)
        ]
        pooled = heads.box_roi_pool(maps, [boxes for boxes, _ in chosen], sizes)
        features = heads.box_head(pooled).split([len(scores) for _, scores in chosen])
        return [
            ImageRegions(own, boxes / boxes.new_tensor([width, height, width, height]), scores)
            for own, (boxes, scores), (height, width) in zip(features, chosen, sizes, strict=True)
        ]

    def _choose(self, boxes: Tensor, probabilities: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Boxes (n, 4) and scores (n,) of the best regions, of boxes (m, classes, 4) and probabilities (m, classes)."""
        from torchvision.ops import clip_boxes_to_image, nms

        scores, classes = probabilities[:, 1:].max(dim=1)  # class 0 is the background
        own = clip_boxes_to_image(boxes[torch.arange(len(boxes)), classes + 1], size)
        best = nms(own, scores, self.overlap)[: self.regions]
        wanted = int((scores[best] >= self.min_score).sum())
        best = best[: max(wanted, self.min_regions)]
        return own[best], scores[best]
