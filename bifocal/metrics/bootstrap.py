"""Intervals by resampling images, not queries: the percentile bootstrap (Efron and Tibshirani,
1993, section 13.3), and a lower bound by random subsets.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 256
"""Resamples per block: the weights of 25,000 images take 50 MB."""
MEDIANS = 16
"""Resamples per block for medians, which need one weight per query."""
SUBSETS, SUBSETS_PER_TAIL = 10_000, 20
"""Least number of subsets, and least expected number of subset means below the bound."""


def bootstrap_means(totals: Tensor, counts: Tensor, resamples: int, seed: int) -> Tensor:
    """Return the mean per query (resamples, S) of each metric, NaN where a resample holds no query
    of it."""
    _check_shapes(totals, counts)
    if (counts.sum(dim=0) == 0).any():
        raise ValueError(
            f"metrics {(counts.sum(dim=0) == 0).nonzero().flatten().tolist()} have no query"
        )
    totals, counts = totals.double(), counts.double()
    return torch.cat(
        [
            (weights @ totals) / (weights @ counts)
            for weights in _weights(len(counts), resamples, seed)
        ]
    )


def bootstrap_medians(values: Tensor, group: Tensor, resamples: int, seed: int) -> Tensor:
    """Return the median over queries (Q,) for each resample of their images, with the draws of
    ``bootstrap_means``."""
    ordered, order = values.double().sort()
    group = group[order]
    medians = []
    for weights in _weights(int(group.max()) + 1, resamples, seed):
        for part in weights.split(MEDIANS):
            cumulative = part[:, group].cumsum(dim=1)
            half = cumulative[:, -1:] / 2
            # Of an even number of queries the median is the mean of two values, which differ only
            # if half is a sum.
            lower, upper = (
                torch.searchsorted(cumulative, half),
                torch.searchsorted(cumulative, half, right=True),
            )
            medians.append((ordered[lower] + ordered[upper]).squeeze(1) / 2)
    return torch.cat(medians)


def mean_interval(
    values: NDArray[np.float64],
    image_ids: Sequence[str],
    *,
    resamples: int,
    seed: int,
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean of per-query values (Q,)."""
    rows = torch.from_numpy(np.unique(np.asarray(image_ids), return_inverse=True)[1])
    totals = torch.zeros(int(rows.max()) + 1, dtype=torch.float64).index_add_(
        0, rows, torch.from_numpy(values)
    )
    means = bootstrap_means(totals.unsqueeze(1), rows.bincount().unsqueeze(1), resamples, seed)
    return percentile_interval(means.squeeze(1))


def percentile_interval(resampled: Tensor) -> tuple[float, float]:
    """Return the bounds of the central 95 % of resampled values; NaN are ignored."""
    low, high = resampled.nanquantile(torch.tensor([0.025, 0.975], dtype=resampled.dtype)).tolist()
    return low, high


def _weights(images: int, resamples: int, seed: int) -> Iterator[Tensor]:
    """Yield how often each image is drawn, (at most ``BLOCK`` resamples, images) float64."""
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, resamples, BLOCK):
        size = min(BLOCK, resamples - start)
        drawn = torch.randint(images, (size, images), generator=generator)
        weights = torch.zeros(size, images, dtype=torch.float64)
        yield weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))


def subset_lower_bound(differences: Tensor, counts: Tensor, alpha: float, seed: int) -> float:
    """Return the lower bound, at one-sided level ``alpha``, for the sum of several metrics' mean
    differences.

    Hartigan, JASA 64, 1969: the means of B random subsets divide the line into B + 1 intervals that
    contain the true mean equally often. With m differing images, all in favor of one model, the
    bootstrap claims a level of e^-m for 2^-m.

    ``differences`` (G, S) are totals per image and metric over its queries, ``counts`` (G, S),
    first minus second.
    """
    _check_shapes(differences, counts)
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha:g}, expected a probability between 0 and 1")
    tail, subsets = tail_and_subsets(alpha)
    means = subset_means(differences, counts, subsets, seed)
    # A subset may hold no query of a metric, and then adds 0.
    return float(means.nan_to_num(0.0).sum(dim=1).kthvalue(tail).values)


def tail_and_subsets(alpha: float) -> tuple[int, int]:
    """Return k and a number of subsets: the bound at level ``alpha`` is their k-th smallest
    mean."""
    tail = max(SUBSETS_PER_TAIL, math.ceil(SUBSETS * alpha))
    return tail, math.ceil(tail / alpha) - 1


def subset_means(totals: Tensor, counts: Tensor, subsets: int, seed: int) -> Tensor:
    """Return the mean per query (subsets, S) for random subsets; a toss of a coin puts each image
    into a subset."""
    generator = torch.Generator().manual_seed(seed)
    totals, counts = totals.double(), counts.double()
    means = []
    for start in range(0, subsets, BLOCK):
        size = (min(BLOCK, subsets - start), len(totals))
        chosen = torch.randint(2, size, generator=generator, dtype=torch.int8).double()
        means.append((chosen @ totals) / (chosen @ counts))
    return torch.cat(means)


def _check_shapes(totals: Tensor, counts: Tensor) -> None:
    if totals.shape != counts.shape or totals.ndim != 2:
        raise ValueError(
            f"totals {tuple(totals.shape)} and counts {tuple(counts.shape)} differ: each needs "
            "one row per image and one column per metric"
        )
