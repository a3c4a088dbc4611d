"""Heatmap of pixels from the scores of regions."""

import torch
from torch import Tensor


def rasterize(scores: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Give each pixel the highest score among the regions that contain its center; thesis, section 4.2.2.

    A pixel outside all regions gets the lowest score.

    Args:
        boxes: x0 y0 x1 y1 relative to the image's width and height.
        height, width: size of the heatmap, pixels.

    Shape:
        scores (R,), boxes (R, 4) -> (height, width)

    Example:
        >>> halves = torch.tensor([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
        >>> rasterize(torch.tensor([1.0, 2.0]), halves, height=1, width=4).tolist()
        [[1.0, 1.0, 2.0, 2.0]]
    """
    x = (torch.arange(width) + 0.5) / width
    y = (torch.arange(height) + 0.5) / height
    inside_x = (x >= boxes[:, 0:1]) & (x < boxes[:, 2:3])
    inside_y = (y >= boxes[:, 1:2]) & (y < boxes[:, 3:4])
    inside = inside_y.unsqueeze(2) & inside_x.unsqueeze(1)
    return torch.where(inside, scores[:, None, None], scores.min()).amax(dim=0)
