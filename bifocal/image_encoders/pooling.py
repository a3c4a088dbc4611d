"""Pooling of an image's regions."""

import torch
from torch import Tensor


def mean_region(features: Tensor, mask: Tensor) -> Tensor:
    """Return the mean (B, D) of the regions (B, R, D) that the mask (B, R) marks."""
    present = mask.unsqueeze(2)
    return (features * present).sum(dim=1) / present.sum(dim=1)


def max_plus_min(features: Tensor, mask: Tensor, k: int = 1) -> Tensor:
    """Return the mean of the k highest plus the mean of the k lowest values of each channel (B, D).

    "Finding beans in burgers", eq. (2), with k = 1. An image of fewer regions has the mean of all of them, twice.
    """
    absent = ~mask.unsqueeze(2)
    high, low = features.masked_fill(absent, -torch.inf), features.masked_fill(absent, torch.inf)
    if k == 1:
        return high.amax(dim=1) + low.amin(dim=1)
    extremes = high.sort(dim=1, descending=True).values[:, :k] + low.sort(dim=1).values[:, :k]
    counts = mask.sum(dim=1, keepdim=True).clamp(max=k)
    counted = torch.arange(extremes.shape[1], device=mask.device) < counts
    return torch.where(counted.unsqueeze(2), extremes, 0.0).sum(dim=1) / counts
