"""Boxes x0 y0 x1 y1, relative to the image's width and height."""

import torch
from torch import Tensor


def cell_boxes(rows: int, columns: int) -> Tensor:
    """Return the boxes (rows * columns, 4) of the cells of a feature map, row by row."""
    top, left = torch.meshgrid(torch.arange(rows) / rows, torch.arange(columns) / columns, indexing="ij")
    boxes = torch.stack([left, top, left + 1 / columns, top + 1 / rows], dim=-1)
    return boxes.reshape(-1, 4).clamp(max=1)


def mirrored(boxes: Tensor) -> Tensor:
    """Return the boxes (n, 4) of the same places in the mirrored image."""
    left, top, right, bottom = boxes.unbind(dim=1)
    return torch.stack([1 - right, top, 1 - left, bottom], dim=1)


def coordinates(boxes: Tensor) -> Tensor:
    """Return boxes (n, 4) as features (n, 7): x0 y0 x1 y1, width, height, area (Hu et al., CVPR 2016)."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return torch.cat([boxes, sides, sides.prod(dim=1, keepdim=True)], dim=1)
