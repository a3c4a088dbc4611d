"""Average precision."""

import torch
from torch import Tensor


def average_precision(scores: Tensor, matches: Tensor) -> float:
    """Return the mean of the precision at every match, in [0, 1], eq. (5.7) of the thesis; not interpolated.

    Tied elements count as if each of their orders were equally likely, as in ``bifocal.metrics.retrieval.ranks``. A
    constant score thus gives about the share of matches, whatever the order of the rows.

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
    correct = torch.zeros(len(size), dtype=torch.float64).index_add(0, group, matches.double())
    start, correct_before = size.cumsum(0) - size, correct.cumsum(0) - correct
    rank = torch.arange(len(scores))
    group_of_rank = torch.repeat_interleave(torch.arange(len(size)), size)
    position = rank - start[group_of_rank]
    # Given a match at this rank, each other match of the tie precedes it with probability position / (size - 1).
    expected = (correct[group_of_rank] - 1) * position / (size[group_of_rank] - 1).clamp(min=1)
    precision = (correct_before[group_of_rank] + 1 + expected) / (rank + 1)
    return float((correct[group_of_rank] / size[group_of_rank] * precision).sum() / correct.sum())


def mean_average_precision(scores: Tensor, matches: Tensor, known: Tensor | None = None) -> float:
    """Return the mean of ``average_precision`` over the classes that have a match.

    Args:
        known: elements that count for each class; None for all. VOC leaves out its "difficult" elements.

    Shape:
        scores (C classes, n elements), matches (C, n) bool, known (C, n) bool.

    Returns:
        NaN if no class has a match.
    """
    if scores.ndim != 2 or scores.shape != matches.shape:
        raise ValueError(f"scores {tuple(scores.shape)} and matches {tuple(matches.shape)}: expected (C, n) of both")
    kept = torch.ones_like(matches) if known is None else known
    values = [
        average_precision(row[columns], truth[columns])
        for row, truth, columns in zip(scores, matches, kept, strict=True)
        if truth[columns].any()
    ]
    return sum(values) / len(values) if values else float("nan")
