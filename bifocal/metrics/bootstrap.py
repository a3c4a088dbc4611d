"""The bootstrap: how sure a figure of one model is, or a difference between two models on the same queries.

Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3 (the percentile interval). Images are
resampled, not queries: the captions of an image are no independent draws.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK = 256
"""Resamples at a time: a block of weights of 25,000 images takes 50 MB."""
MEDIANS = 16
"""Resamples at a time whose medians are sought, which needs a weight for each query."""


def bootstrap_difference(first: Tensor, second: Tensor, counts: Tensor, resamples: int, seed: int) -> Tensor:
    """Differences of a sum of means, first - second, over resamples of the images; for both the same ones.

    Args:
        first, second: of each image and figure, the total over its queries: hits among the first K, for R@K.
        counts: of each image and figure, the queries; an image may have none of a figure.
        resamples: how many.

    Shape:
        first, second, counts (G, S) -> (resamples,) float64

    Raises:
        ValueError: the shapes differ, or a figure has no query at all.

    Example:
        >>> hits = torch.ones(10, 1)
        >>> bootstrap_difference(hits, 0 * hits, hits, resamples=3, seed=0).tolist()
        [1.0, 1.0, 1.0]
    """
    if first.shape != second.shape:
        raise ValueError(_shapes(first, second, counts))
    # A resample may hold no query of a figure; it then says nothing of it.
    return bootstrap_means(first.double() - second.double(), counts, resamples, seed).nan_to_num(0.0).sum(dim=1)


def bootstrap_means(totals: Tensor, counts: Tensor, resamples: int, seed: int) -> Tensor:
    """Means per query over resamples of the images, of several figures at once.

    Args:
        totals, counts: of each image and figure, as in ``bootstrap_difference``.

    Shape:
        totals, counts (G, S) -> (resamples, S) float64; NaN where a resample holds no query of a figure.

    Raises:
        ValueError: the shapes differ, or a figure has no query at all.
    """
    if totals.shape != counts.shape or totals.ndim != 2:
        raise ValueError(_shapes(totals, totals, counts))
    if (counts.sum(dim=0) == 0).any():
        raise ValueError(f"figures {(counts.sum(dim=0) == 0).nonzero().flatten().tolist()} have no query")
    totals, counts = totals.double(), counts.double()
    return torch.cat([(weights @ totals) / (weights @ counts) for weights in _weights(len(counts), resamples, seed)])


def bootstrap_medians(values: Tensor, group: Tensor, resamples: int, seed: int) -> Tensor:
    """Medians over resamples of the groups, with the same draws as ``bootstrap_means``.

    Args:
        values: of each query, such as its rank.
        group: the image that the query is drawn with, from 0; each has at least one.

    Shape:
        values, group (Q,) -> (resamples,) float64
    """
    ordered, order = values.double().sort()
    group = group[order]
    found = []
    for weights in _weights(int(group.max()) + 1, resamples, seed):
        for part in weights.split(MEDIANS):
            seen = part[:, group].cumsum(dim=1)
            half = seen[:, -1:] / 2
            # With an even number the median lies between two values, which are the same unless half is met exactly.
            lower, upper = torch.searchsorted(seen, half), torch.searchsorted(seen, half, right=True)
            found.append((ordered[lower] + ordered[upper]).squeeze(1) / 2)
    return torch.cat(found)


def percentile_interval(resampled: Tensor, level: float) -> tuple[float, float]:
    """The bounds that hold the share ``level`` of the resampled figures, the rest half below and half above; NaN apart.

    Shape:
        resampled (resamples,)
    """
    tail = (1 - level) / 2
    low, high = resampled.nanquantile(torch.tensor([tail, 1 - tail], dtype=resampled.dtype)).tolist()
    return low, high


def _weights(images: int, resamples: int, seed: int) -> Iterator[Tensor]:
    """How often each image is drawn, (at most ``BLOCK`` resamples, images) float64."""
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, resamples, BLOCK):
        size = min(BLOCK, resamples - start)
        drawn = torch.randint(images, (size, images), generator=generator)
        weights = torch.zeros(size, images, dtype=torch.float64)
        yield weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))


def _shapes(first: Tensor, second: Tensor, counts: Tensor) -> str:
    return (
        f"totals {tuple(first.shape)} and {tuple(second.shape)} and counts {tuple(counts.shape)} differ: "
        "each needs one row per image and one column per figure"
    )
