"""Random inputs of localizers."""

import torch
from torch import Tensor

from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes

BACKBONE = {"backbone": "resnet10t", "model_arguments": {"channels": [4, 4, 4, 8], "stem_width": 4}}


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_float32(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pixels(*sizes: tuple[int, int]) -> RegionBatch:
    """Return images of the given heights and widths, padded with zeros like images of the feature
    store."""
    side = max(max(size) for size in sizes)
    images, mask = (
        torch.zeros(len(sizes), 3, side, side, dtype=torch.uint8),
        torch.zeros(len(sizes), side, side).bool(),
    )
    for number, (height, width) in enumerate(sizes):
        images[number, :, :height, :width] = (
            (40 * draw_float32(number, 3, height, width) + 128).clamp(0, 255).byte()
        )
        mask[number, :height, :width] = True
    return RegionBatch(images, mask, torch.zeros(len(sizes), 0, 4))


def regions(count: int = 2) -> RegionBatch:
    boxes = cell_boxes(2, 2).expand(count, -1, -1)
    return RegionBatch(draw_float32(0, count, 4, 3).half(), torch.ones(count, 4).bool(), boxes)


def batch(dim: int) -> RegionBatch:
    """Return four cells of two images, the second of which has three."""
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[1, -1] = False
    return RegionBatch(draw(3, 2, 4, dim).half(), mask, cell_boxes(2, 2).expand(2, -1, -1))
