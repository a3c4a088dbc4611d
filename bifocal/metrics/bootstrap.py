"""The paired bootstrap: how sure a difference between two models on the same queries is.

Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3 (the percentile interval). Images are
resampled, not queries: the captions of an image are no independent draws.
"""

import torch
from torch import Tensor

BLOCK = 256
"""Resamples at a time: a block of weights of 25,000 images takes 50 MB."""


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
    if not first.shape == second.shape == counts.shape or first.ndim != 2:
        raise ValueError(
            f"totals {tuple(first.shape)} and {tuple(second.shape)} and counts {tuple(counts.shape)} differ: "
            "each needs one row per image and one column per figure"
        )
    if (counts.sum(dim=0) == 0).any():
        raise ValueError(f"figures {(counts.sum(dim=0) == 0).nonzero().flatten().tolist()} have no query")
    generator = torch.Generator().manual_seed(seed)
    differences, counts = first.double() - second.double(), counts.double()
    found = []
    for start in range(0, resamples, BLOCK):
        size = min(BLOCK, resamples - start)
        drawn = torch.randint(len(counts), (size, len(counts)), generator=generator)
        weights = torch.zeros(size, len(counts), dtype=torch.float64)
        weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
        queries = weights @ counts
        # A resample may hold no query of a figure; it then says nothing of it.
        found.append(((weights @ differences) / queries).nan_to_num(0.0).sum(dim=1))
    return torch.cat(found)
