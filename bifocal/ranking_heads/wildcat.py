"""WILDCAT: class maps, and a pooling that looks at their highest and their lowest places."""

import torch
from torch import Tensor, nn


class WildcatHead(nn.Module):
    """Class maps over grid cells or regions, pooled by their highest and their lowest values.

    Durand, Mordan, Thome and Cord, "WILDCAT: weakly supervised learning of deep ConvNets for image classification,
    pointwise localization and segmentation", CVPR 2017: a 1 x 1 convolution to ``maps`` maps of each class, their
    mean, and for each class

        mean of the k+ highest values + alpha x mean of the k- lowest values.

    The model of thesis 5.5.2. (The authors' code halves the sum; the paper does not.)

    Args:
        input_dim: D, channels of a region's feature.
        labels: C, classes.
        maps: M, maps of each class, for its different looks.
        alpha: weight of the lowest places, which speak against a class; 0 leaves them out.
        highest, lowest: k+ and k-, as fractions of the image's regions in (0, 1], one region at least.

    Shape:
        features (B, R, D), mask (B, R) bool, true where there is a region -> (B, C).
    """

    def __init__(
        self,
        input_dim: int = 2048,
        labels: int = 20,
        maps: int = 4,
        alpha: float = 0.7,
        highest: float = 0.2,
        lowest: float = 0.2,
    ) -> None:
        super().__init__()
        if not (0 < highest <= 1 and 0 < lowest <= 1):
            raise ValueError(f"highest is {highest} and lowest {lowest}: expected fractions of the regions in (0, 1]")
        self.convolution = nn.Linear(input_dim, labels * maps)
        self.labels, self.alpha = labels, alpha
        self.highest, self.lowest = highest, lowest

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        maps = self.class_maps(features)
        scores = _mean_of_first(maps, mask, self.highest, descending=True)
        return scores + self.alpha * _mean_of_first(maps, mask, self.lowest, descending=False)

    def class_maps(self, features: Tensor) -> Tensor:
        """What each region says for each class; a heatmap, where regions are cells.

        Shape:
            (B, R, D) -> (B, R, C).
        """
        maps: Tensor = self.convolution(features).unflatten(2, (self.labels, -1)).mean(dim=3)
        return maps


def _mean_of_first(maps: Tensor, mask: Tensor, fraction: float, *, descending: bool) -> Tensor:
    """Mean of the first ``fraction`` of an image's values in their order, of each class: (B, R, C) -> (B, C)."""
    last = -torch.inf if descending else torch.inf
    ordered = maps.masked_fill(~mask.unsqueeze(2), last).sort(dim=1, descending=descending).values
    count = (fraction * mask.sum(dim=1)).round().clamp(min=1)
    taken = torch.arange(maps.shape[1], device=maps.device) < count.unsqueeze(1)
    # Where there is nothing, infinities wait behind what is taken.
    mean: Tensor = ordered.masked_fill(~taken.unsqueeze(2), 0).sum(dim=1) / count.unsqueeze(1)
    return mean
