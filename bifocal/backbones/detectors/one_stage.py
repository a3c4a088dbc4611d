"""Regions of the detectors of torchvision that have no head for proposals: RetinaNet, FCOS, SSD."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from torch import Tensor

POOLED_SIZE, CANDIDATES = 7, 300


class Detections(NamedTuple):
    """Detections of one image, in order of decreasing score."""

    boxes: Tensor  # (n, 4), x0 y0 x1 y1 relative to the sides of the image
    scores: Tensor  # (n,), of the best class
    features: Tensor  # (n, D)


def detect(network: Any, images: Sequence[Tensor], overlap: float, count: int) -> list[Detections]:
    """Return at most ``count`` best detections per image; the images (3, H, W) in [0, 1] have one shape."""
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
    pooled = MultiScaleRoIAlign(list(maps), POOLED_SIZE, sampling_ratio=2)(maps, scaled, resized.image_sizes)
    return list(cast(Tensor, pooled).mean(dim=(2, 3)).split([len(found) for found in scaled]))
