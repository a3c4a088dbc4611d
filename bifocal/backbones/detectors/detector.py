"""Detectors of torchvision, and regions of those without a head for proposals: RetinaNet, FCOS,
SSD."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from bifocal.registry import suggest

POOLED_SIZE, CANDIDATES = 7, 300


class Detector:
    """A frozen detector of torchvision with random weights; ``two_stage`` if its head classifies
    proposed boxes."""

    classifier_prefix = ""

    def __init__(self, name: str, model_arguments: dict[str, Any]) -> None:
        # imported here: it takes seconds, and a process that only reads a store does not need it
        from torchvision.models import detection, get_model, list_models

        detectors = list_models(module=detection)
        if name not in detectors:
            raise ValueError(f"torchvision has no detector {name!r}; {suggest(name, detectors)}")
        self.name, self.model_arguments = name, model_arguments
        self.network: nn.Module = get_model(
            name, weights=None, weights_backbone=None, **model_arguments
        )
        self.network = self.network.eval().requires_grad_(False)
        self.two_stage = hasattr(self.network, "roi_heads")

    def describe(self) -> dict[str, Any]:
        return {"backbone": self.name, "model_arguments": self.model_arguments}

    def pretrained_state(self) -> dict[str, Tensor]:
        """Download and return torchvision's weights of this detector."""
        from torchvision.models import get_model

        model = get_model(self.name, weights="DEFAULT", **self.model_arguments)
        return cast(dict[str, Tensor], model.state_dict())

    def download_url(self) -> str:
        """Return the address of the file that torchvision downloads."""
        from torchvision.models import get_model_weights

        return cast(str, get_model_weights(self.name).DEFAULT.url)


class Detections(NamedTuple):
    """Detections of one image, in order of decreasing score."""

    boxes: Tensor  # (n, 4), x0 y0 x1 y1 relative to the sides of the image
    scores: Tensor  # (n,), of the best class
    features: Tensor  # (n, D)


def detect(network: Any, images: Sequence[Tensor], overlap: float, count: int) -> list[Detections]:
    """Return at most ``count`` best detections per image; the images (3, H, W) in [0, 1] have one
    shape."""
    from torchvision.ops import nms

    # A threshold would leave an image of weak scores without any region.
    network.score_thresh, network.nms_thresh, network.detections_per_img = 0.0, overlap, CANDIDATES
    kept = []
    for found in network(list(images)):
        best = nms(found["boxes"], found["scores"], overlap)[:count]
        kept.append((found["boxes"][best], found["scores"][best]))
    features = _pool(network, images, [boxes for boxes, _ in kept])
    sides = [[image.shape[2], image.shape[1]] * 2 for image in images]
    return [
        Detections((boxes / boxes.new_tensor(side)).clamp(0, 1), scores, vectors)
        for (boxes, scores), vectors, side in zip(kept, features, sides, strict=True)
    ]


def head_maps(network: Any, images: Tensor) -> dict[str, Tensor]:
    """Return the maps that regions are pooled from, by level, for resized images (B, 3, H, W)."""
    maps: dict[str, Tensor] = network.backbone(images)
    tower = getattr(getattr(network.head, "classification_head", None), "conv", None)
    if tower is None:
        lowest = next(iter(maps))
        return {lowest: maps[lowest]}
    return {level: tower(features) for level, features in maps.items()}


def _pool(network: Any, images: Sequence[Tensor], boxes: Sequence[Tensor]) -> list[Tensor]:
    from torchvision.ops import MultiScaleRoIAlign

    resized, _ = network.transform(list(images))
    scaled = [
        found * found.new_tensor([width / image.shape[2], height / image.shape[1]] * 2)
        for found, image, (height, width) in zip(boxes, images, resized.image_sizes, strict=True)
    ]
    maps = head_maps(network, resized.tensors)
    pooled = MultiScaleRoIAlign(list(maps), POOLED_SIZE, sampling_ratio=2)(
        maps, scaled, resized.image_sizes
    )
    return list(cast(Tensor, pooled).mean(dim=(2, 3)).split([len(found) for found in scaled]))
