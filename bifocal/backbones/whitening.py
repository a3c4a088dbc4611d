"""PCA-whitening: directions of a collection of vectors, each divided by its standard deviation."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

SMALLEST = 1e-7
"""Variance, as a part of the largest, below which a direction is noise."""


class Whitening(NamedTuple):
    """``projection (x - mean)`` of each vector x has no correlation and unit variances, over what it was learnt on.

    Attributes:
        mean: (C,).
        projection: (D, C), rows from the largest variance to the smallest.
    """

    mean: Tensor
    projection: Tensor

    def __call__(self, vectors: Tensor) -> Tensor:
        """(..., C) to (..., D)."""
        return (vectors - self.mean) @ self.projection.T


def learn_whitening(batches: Iterable[Tensor], dim: int) -> Whitening:
    """Learn from vectors (n, C) that come in batches; memory is C x C however many there are.

    Jegou, Chum, "Negative evidences and co-occurrences in image retrieval", ECCV 2012.

    Args:
        dim: D, directions to keep.

    Raises:
        ValueError: the vectors do not vary in so many directions.
    """
    count, total, products = 0, torch.zeros(()), torch.zeros(())
    for batch in batches:
        vectors = batch.double().cpu()
        count += len(vectors)
        total, products = total + vectors.sum(dim=0), products + vectors.T @ vectors
    mean = total / max(count, 1)
    covariance = products / max(count, 1) - torch.outer(mean, mean) if count else torch.zeros(0, 0)
    variances, directions = torch.linalg.eigh(covariance)
    enough = int((variances > SMALLEST * variances[-1]).sum()) if count else 0
    if enough < dim:
        raise ValueError(
            f"{count} regions vary in {enough} directions, a whitening to {dim} was asked: lower dim, "
            "or learn it from more images"
        )
    order = torch.arange(len(variances) - 1, len(variances) - 1 - dim, -1)
    directions = directions[:, order].T
    # An eigenvector has no sign; the largest entry is made positive, so that every machine has the same one.
    signs = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True)).sign()
    projection = signs * directions / variances[order].sqrt().unsqueeze(1)
    return Whitening(mean.float(), projection.float())
