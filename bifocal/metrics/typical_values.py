"""Lower confidence bound of a mean difference by random subsets of the images.

Hartigan, JASA 64, 1969: the means of B random subsets divide the line into B + 1 intervals that contain the true mean
equally often. With m differing images, all in favor of one model, the bootstrap claims a level of e^-m for 2^-m.
"""

import math

import torch
from torch import Tensor

SUBSETS, SUBSETS_PER_TAIL = 10_000, 20
"""Least number of subsets, and least expected number of subset means below the bound."""
BLOCK = 256


def subset_lower_bound(differences: Tensor, counts: Tensor, alpha: float, seed: int) -> float:
    """Return the lower bound, at one-sided level ``alpha``, for the sum of several metrics' mean differences.

    ``differences`` (G, S) are totals per image and metric over its queries, ``counts`` (G, S), first minus second.
    """
    if differences.shape != counts.shape or differences.ndim != 2:
        raise ValueError(
            f"differences {tuple(differences.shape)} and counts {tuple(counts.shape)}: both need one row per image and "
            "one column per metric"
        )
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha:g}, expected a probability between 0 and 1")
    tail, subsets = tail_and_subsets(alpha)
    means = subset_means(differences, counts, subsets, seed)
    # A subset may hold no query of a metric, and then adds 0.
    return float(means.nan_to_num(0.0).sum(dim=1).kthvalue(tail).values)


def tail_and_subsets(alpha: float) -> tuple[int, int]:
    """Return k and a number of subsets: the bound at level ``alpha`` is their k-th smallest mean."""
    tail = max(SUBSETS_PER_TAIL, math.ceil(SUBSETS * alpha))
    return tail, math.ceil(tail / alpha) - 1


def subset_means(totals: Tensor, counts: Tensor, subsets: int, seed: int) -> Tensor:
    """Return the mean per query (subsets, S) for random subsets; a toss of a coin puts each image into a subset."""
    generator = torch.Generator().manual_seed(seed)
    totals, counts = totals.double(), counts.double()
    means = []
    for start in range(0, subsets, BLOCK):
        size = (min(BLOCK, subsets - start), len(totals))
        chosen = torch.randint(2, size, generator=generator, dtype=torch.int8).double()
        means.append((chosen @ totals) / (chosen @ counts))
    return torch.cat(means)
