"""SMILE's localization: how much each region speaks of a text, and what that says of each pixel."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.image_encoders import SMILEEncoder
from bifocal.localization.base import RegionScores, RegionVectors, as_numbers, region_scores


class SMILERegions:
    """Scores of SMILE's regions, thesis, eq. (4.3).

    Args:
        attended: score A o G instead of G, which is what a region adds to the image's embedding and so to its score.
    """

    def __init__(self, attended: bool = False) -> None:
        self.attended = attended

    def see(self, encoder: nn.Module, regions: RegionBatch) -> RegionVectors:
        """See ``bifocal.localization.base.Localizer``."""
        if not isinstance(encoder, SMILEEncoder):
            raise ValueError(f"SMILERegions needs a SMILEEncoder, and the model has a {type(encoder).__name__}")
        vectors = normalize(encoder.convolution(as_numbers(encoder, regions.features)), dim=2)
        if self.attended:
            vectors = encoder.weights(vectors, regions.mask) * vectors
        return RegionVectors(vectors, regions.mask, regions.boxes)

    def heat(self, seen: RegionVectors, texts: Tensor) -> RegionScores:
        """See ``bifocal.localization.base.Localizer``."""
        return RegionScores(region_scores(seen.vectors, texts).masked_fill(~seen.mask, -torch.inf), seen.boxes)

    def __call__(self, encoder: nn.Module, regions: RegionBatch, texts: Tensor) -> RegionScores:
        """See ``bifocal.localization.base.Localizer``."""
        return self.heat(self.see(encoder, regions), texts)


def rasterize(scores: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Each pixel gets the top score among the regions it belongs to; thesis, section 4.2.2.

    A pixel belongs to a box that holds its centre. One that no box holds gets the lowest score of all: nothing is
    known of it.

    Args:
        boxes: x0 y0 x1 y1 relative to the image's width and height.
        height, width: of the map, in pixels.

    Shape:
        scores (R,), boxes (R, 4) -> (height, width)

    Example:
        >>> halves = torch.tensor([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
        >>> rasterize(torch.tensor([1.0, 2.0]), halves, height=1, width=4).tolist()
        [[1.0, 1.0, 2.0, 2.0]]
    """
    x = (torch.arange(width) + 0.5) / width
    y = (torch.arange(height) + 0.5) / height
    across = (x >= boxes[:, 0:1]) & (x < boxes[:, 2:3])
    down = (y >= boxes[:, 1:2]) & (y < boxes[:, 3:4])
    belongs = down.unsqueeze(2) & across.unsqueeze(1)
    lowest = scores.min()
    return torch.where(belongs, scores[:, None, None], lowest).amax(dim=0)
