"""What a way of localizing gives, and where it points."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from bifocal.features import RegionBatch


class RegionScores(NamedTuple):
    """How much each region of each image speaks of its text.

    Attributes:
        scores: (N, R), -inf where there is no region.
        boxes: (N, R, 4), x0 y0 x1 y1 relative to the image's width and height.
    """

    scores: Tensor
    boxes: Tensor


class RegionVectors(NamedTuple):
    """What a localizer takes of N images before it hears a text.

    Attributes:
        vectors: (N, ..., R, d), one for each region, and for each level where there are several.
        mask: (N, R) bool, where there is a region.
        boxes: (N, R, 4), as above.
    """

    vectors: Tensor
    mask: Tensor
    boxes: Tensor

    def of(self, rows: Tensor) -> "RegionVectors":
        """The images of ``rows`` (n,); one may come more than once."""
        return RegionVectors(*(part[rows] for part in self))


class Localizer(Protocol):
    """A part of ``bifocal.localization``."""

    def see(self, encoder: nn.Module, regions: RegionBatch) -> RegionVectors:
        """What there is to be looked at in N images, whatever the text.

        Args:
            encoder: the image encoder of the model.

        Raises:
            ValueError: the encoder is not one that this localizes with.
        """
        ...

    def heat(self, seen: RegionVectors, texts: Tensor) -> RegionScores:
        """Locate one text in each image.

        Args:
            texts: (N, d), embeddings.
        """
        ...

    def __call__(self, encoder: nn.Module, regions: RegionBatch, texts: Tensor) -> RegionScores:
        """Both, one after the other."""
        ...


def as_numbers(encoder: nn.Module, features: Tensor) -> Tensor:
    """Stored features in the precision of the encoder's weights."""
    return features.to(next(encoder.parameters()).dtype)


def region_scores(regions: Tensor, texts: Tensor) -> Tensor:
    """L[r] = <z, G[:, r]>: Engilberge's thesis, 2020, eq. (4.3).

    Args:
        regions: G, the regions in the joint space, before they are pooled.
        texts: z, the embedding of one text for each image.

    Shape:
        regions (N, R, d), texts (N, d) -> (N, R)

    Raises:
        ValueError: the dimensions differ.
    """
    if regions.ndim != 3 or texts.shape != (len(regions), regions.shape[2]):
        raise ValueError(
            f"regions {tuple(regions.shape)} and texts {tuple(texts.shape)} differ: "
            "expected (N, R, d) and one text (N, d) for each image"
        )
    return torch.einsum("nrd,nd->nr", regions, texts)


def points(located: RegionScores) -> Tensor:
    """Where each heatmap points: the centre of its best region, x y relative to the image's width and height.

    Of regions that score the same the point is that which lies nearest to the image's centre, then the upper, then
    the left one: no order of the regions decides.

    Shape:
        -> (N, 2)

    Raises:
        ValueError: a score is NaN, or an image has no region that is scored, or its best region has no box.
    """
    scores, boxes = located
    if scores.isnan().any():
        raise ValueError(f"scores are NaN in {int(scores.isnan().any(dim=1).sum())} of {len(scores)} images")
    best = scores.amax(dim=1, keepdim=True)
    if best.isneginf().any():
        raise ValueError(
            f"{int(best.isneginf().sum())} of {len(scores)} images have no region that could be pointed at"
        )
    centres = (boxes[:, :, :2] + boxes[:, :, 2:]) / 2
    if centres[scores == best].isnan().any():
        raise ValueError("a best region has no box: features without boxes cannot point")
    far = (centres - 0.5).square().sum(dim=2).masked_fill(scores != best, torch.inf)
    # Several cells lie equally far from the centre, up to rounding.
    nearest = far <= far.amin(dim=1, keepdim=True) + 1e-6
    first = (2 * centres[:, :, 1] + centres[:, :, 0] / 1024).masked_fill(~nearest, torch.inf).argmin(dim=1)
    return centres[torch.arange(len(centres), device=centres.device), first]
