"""Average precision."""

import torch
from torch import Tensor


def average_precision(scores: Tensor, matches: Tensor) -> float:
    """The mean of the precision at every match, in [0, 1], eq. (5.7) of the thesis; not interpolated.

    Tied elements have no order. The rule is that of ``bifocal.metrics.retrieval.recall``: the expected value, as if each
    order among them were equally likely. A constant score thus gets about the share of the matches, whatever the order
    of the rows.

    Shape:
        scores (n,), matches (n,) bool.

    Returns:
        NaN if nothing matches.

    Raises:
        ValueError: the shapes differ, or a score is NaN.

    Example:
        >>> round(average_precision(torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, False, True])), 6)
        0.833333
    """
    if scores.ndim != 1 or scores.shape != matches.shape:
        raise ValueError(f"scores {tuple(scores.shape)} and matches {tuple(matches.shape)}: expected (n,) of both")
    if scores.isnan().any():
        raise ValueError(f"{int(scores.isnan().sum())} of {len(scores)} scores are NaN and have no rank")
    _, group, size = scores.neg().unique(return_inverse=True, return_counts=True)
    found = torch.zeros(len(size), dtype=torch.float64).index_add(0, group, matches.double())
    before, found_before = size.cumsum(0) - size, found.cumsum(0) - found
    # One row a place in the order: how far into its group of equals it is, from 0.
    place = torch.arange(len(scores))
    of = torch.repeat_interleave(torch.arange(len(size)), size)
    within = place - before[of]
    # A match at this place has, of its equals' other matches, each in front of it with the same chance.
    others = (found[of] - 1) * within / (size[of] - 1).clamp(min=1)
    precision = (found_before[of] + 1 + others) / (place + 1)
    return float((found[of] / size[of] * precision).sum() / found.sum())


def mean_average_precision(scores: Tensor, matches: Tensor, known: Tensor | None = None) -> float:
    """The mean of ``average_precision`` over the classes that have a match.

    Args:
        known: elements of each class that count; all if it is not given. VOC leaves its "difficult" ones out.

    Shape:
        scores (C classes, n elements), matches (C, n) bool, known (C, n) bool.

    Returns:
        NaN if no class has a match.
    """
    if scores.ndim != 2 or scores.shape != matches.shape:
        raise ValueError(f"scores {tuple(scores.shape)} and matches {tuple(matches.shape)}: expected (C, n) of both")
    kept = torch.ones_like(matches) if known is None else known
    values = [
        average_precision(row[rows], truth[rows])
        for row, truth, rows in zip(scores, matches, kept, strict=True)
        if truth[rows].any()
    ]
    return sum(values) / len(values) if values else float("nan")
