"""Heatmaps of pixels from the scores of regions, and their peaks."""

import torch
from torch import Tensor

from bifocal.localization.base import RegionScores


def rasterize(scores: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Give each pixel the highest score among the regions that contain its center; thesis, section
    4.2.2.

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


def has_peak(region_scores: RegionScores) -> Tensor:
    """Return whether the scores of an image's regions differ, (N,); else, as without any attention,
    none is a peak."""
    scores = region_scores.scores
    absent = scores.isneginf()
    return (scores.amax(dim=1) > scores.masked_fill(absent, torch.inf).amin(dim=1)) | (
        (~absent).sum(dim=1) == 1
    )


def peak_points(region_scores: RegionScores, corner: bool = False) -> Tensor:
    """Return the center or the upper left corner of each image's best region, x y relative to width
    and height.

    Among regions with equal scores, the center nearest to the image's center wins, then the
    uppermost, then the
    leftmost: the order of the regions does not decide.

    Shape:
        -> (N, 2)

    Raises:
        ValueError: a score is NaN, an image has no region, or a best region has no box.

    Example:
        >>> boxes = torch.tensor([[[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]])
        >>> peak_points(RegionScores(torch.tensor([[0.1, 0.7]]), boxes))
        tensor([[0.7500, 0.5000]])
    """
    scores, boxes = region_scores
    if scores.isnan().any():
        raise ValueError(
            f"scores are NaN in {int(scores.isnan().any(dim=1).sum())} of {len(scores)} images"
        )
    best = scores.amax(dim=1, keepdim=True)
    if best.isneginf().any():
        raise ValueError(
            f"{int(best.isneginf().sum())} of {len(scores)} images have no region with a score"
        )
    centers = (boxes[:, :, :2] + boxes[:, :, 2:]) / 2
    if centers[scores == best].isnan().any():
        raise ValueError("a best region has no box: features without boxes cannot localize")
    distances = (centers - 0.5).square().sum(dim=2).masked_fill(scores != best, torch.inf)
    # Several cells can be equally far from the center, up to rounding.
    nearest = distances <= distances.amin(dim=1, keepdim=True) + 1e-6
    first = (
        (2 * centers[:, :, 1] + centers[:, :, 0] / 1024)
        .masked_fill(~nearest, torch.inf)
        .argmin(dim=1)
    )
    return (boxes[:, :, :2] if corner else centers)[
        torch.arange(len(centers), device=centers.device), first
    ]
