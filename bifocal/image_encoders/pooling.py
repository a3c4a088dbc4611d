"""Pooling of an image's regions."""

import torch
from torch import Tensor


def mean_region(features: Tensor, mask: Tensor) -> Tensor:
    """Return the mean (B, D) of the regions (B, R, D) that the mask (B, R) marks."""
    present = mask.unsqueeze(2)
    return (features * present).sum(dim=1) / present.sum(dim=1)


def max_plus_min(features: Tensor, mask: Tensor) -> Tensor:
    """Return the maximum plus the minimum of each channel (B, D): "Finding beans in burgers", eq. (2)."""
    absent = ~mask.unsqueeze(2)
    highest = features.masked_fill(absent, -torch.inf).amax(dim=1)
    return highest + features.masked_fill(absent, torch.inf).amin(dim=1)
