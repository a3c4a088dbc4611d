"""PCA whitening of vectors."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

MIN_RELATIVE_VARIANCE = 1e-7
"""Directions whose variance is below this fraction of the largest one are noise."""


class Whitening(NamedTuple):
    """The affine map ``projection (x - mean)`` to uncorrelated components of unit variance."""

    mean: Tensor  # (C,)
    projection: Tensor  # (D, C), rows in order of decreasing variance

    def __call__(self, vectors: Tensor) -> Tensor:
        """Map vectors (..., C) to (..., D)."""
        return (vectors - self.mean) @ self.projection.T


def learn_whitening(batches: Iterable[Tensor], dim: int) -> Whitening:
    """Learn a whitening to D = ``dim`` directions from batches (n, C): Jegou, Chum, ECCV 2012."""
    count, total, products = 0, torch.zeros(()), torch.zeros(())
    for batch in batches:
        vectors = batch.double().cpu()
        count += len(vectors)
        total, products = total + vectors.sum(dim=0), products + vectors.T @ vectors
    mean = total / max(count, 1)
    covariance = products / max(count, 1) - torch.outer(mean, mean) if count else torch.zeros(0, 0)
    variances, directions = torch.linalg.eigh(covariance)
    rank = int((variances > MIN_RELATIVE_VARIANCE * variances[-1]).sum()) if count else 0
    if rank < dim:
        raise ValueError(
            f"{count} vectors vary in {rank} directions, a whitening to {dim} needs more: "
            "lower dim, or learn from more images"
        )
    order = torch.arange(len(variances) - 1, len(variances) - 1 - dim, -1)
    directions = directions[:, order].T
    # The sign of an eigenvector is arbitrary: make its largest entry positive, so that all machines
    # agree.
    signs = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True)).sign()
    projection = signs * directions / variances[order].sqrt().unsqueeze(1)
    return Whitening(mean.float(), projection.float())
