"""WILDCAT: class maps, pooled by their highest and lowest activations."""

import torch
from torch import Tensor, nn


class WildcatHead(nn.Module):
    """Class maps over grid cells or regions, pooled by their highest and lowest values.

    Durand, Mordan, Thome and Cord, "WILDCAT: weakly supervised learning of deep ConvNets for image
    classification, pointwise localization and segmentation", CVPR 2017, for thesis 5.5.2. The score
    of a class is the mean of the k+ highest values of its averaged maps + alpha x the mean of the
    k- lowest values. The authors' code halves the sum; the paper does not.

    Args:
        input_dim: D, channels of a region's feature.
        labels: C, classes.
        maps: M, maps per class.
        alpha: weight of the lowest values, which are evidence against a class; 0 ignores them.
        highest, lowest: k+ and k-, as fractions of the image's regions in (0, 1]; at least one
            region.

    Example:
        >>> head = WildcatHead(input_dim=4, labels=3)
        >>> head(torch.randn(2, 9, 4), torch.ones(2, 9, dtype=torch.bool)).shape
        torch.Size([2, 3])
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
            raise ValueError(
                f"highest is {highest} and lowest {lowest}: expected fractions of the regions "
                "in (0, 1]"
            )
        self.convolution = nn.Linear(input_dim, labels * maps)
        self.labels, self.alpha = labels, alpha
        self.highest, self.lowest = highest, lowest

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        maps = self.class_maps(features)
        scores = _mean_of_extremes(maps, mask, self.highest, descending=True)
        return scores + self.alpha * _mean_of_extremes(maps, mask, self.lowest, descending=False)

    def class_maps(self, features: Tensor) -> Tensor:
        """Return the score (B, R, C) of each class in each region: a heatmap if the regions are
        grid cells."""
        maps: Tensor = self.convolution(features).unflatten(2, (self.labels, -1)).mean(dim=3)
        return maps


def _mean_of_extremes(maps: Tensor, mask: Tensor, fraction: float, *, descending: bool) -> Tensor:
    """Mean over the first ``fraction`` of an image's sorted values, for each class: (B, R, C) ->
    (B, C)."""
    last = -torch.inf if descending else torch.inf
    ordered = maps.masked_fill(~mask.unsqueeze(2), last).sort(dim=1, descending=descending).values
    count = (fraction * mask.sum(dim=1)).round().clamp(min=1)
    selected = torch.arange(maps.shape[1], device=maps.device) < count.unsqueeze(1)
    # Regions that do not exist are sorted last, with infinite values: replace them before the sum.
    mean: Tensor = ordered.masked_fill(~selected.unsqueeze(2), 0).sum(dim=1) / count.unsqueeze(1)
    return mean
