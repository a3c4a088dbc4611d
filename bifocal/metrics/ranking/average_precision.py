"""Metrics of one ranking: average precision, and rank correlation."""

import math

import torch
from torch import Tensor

from bifocal.sorters.ranks import check_scores


def precision_by_rank(scores: Tensor, matches: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Return, for the first ``depth`` ranks, the probability of a match and the expected precision
    given one.

    Tied elements count as if each of their orders were equally likely, as in
    ``bifocal.metrics.retrieval.ranks``. Results do not depend on the order of the rows.

    Shape:
        scores (Q, C), matches (Q, C) bool -> two of (Q, depth) float64.

    Raises:
        ValueError: the shapes differ, or a score is NaN.
    """
    _check_shapes(scores, matches, "Q", "C")
    if scores.isnan().any():
        raise ValueError(
            f"{int(scores.isnan().sum())} of {scores.numel()} scores are NaN and have no rank"
        )
    values, order = scores.topk(depth, dim=1)
    found = matches.gather(1, order).double()
    group = torch.zeros_like(order)
    group[:, 1:] = (values[:, 1:] != values[:, :-1]).cumsum(dim=1)
    size, correct = torch.zeros_like(found), torch.zeros_like(found)
    size.scatter_add_(1, group, torch.ones_like(found))
    correct.scatter_add_(1, group, found)
    # The last tie may go on beyond the depth.
    last = scores == values[:, -1:]
    size.scatter_(1, group[:, -1:], last.sum(dim=1, keepdim=True).double())
    correct.scatter_(1, group[:, -1:], (last & matches).sum(dim=1, keepdim=True).double())
    start, before, size, correct = (
        column.gather(1, group)
        for column in (size.cumsum(1) - size, correct.cumsum(1) - correct, size, correct)
    )
    rank = torch.arange(depth, device=scores.device)
    # Given a match at this rank, each other match of the tie precedes it with probability position
    # / (size - 1).
    expected = before + 1 + (correct - 1) * (rank - start) / (size - 1).clamp(min=1)
    return correct / size, expected / (rank + 1)


def average_precision(scores: Tensor, matches: Tensor) -> float:
    """Return the mean of the precision at every match, in [0, 1], eq. (5.7) of the thesis; not
    interpolated.

    A constant score gives about the share of matches, see ``precision_by_rank``.

    Shape:
        scores (n,), matches (n,) bool.

    Returns:
        NaN if nothing matches.

    Raises:
        ValueError: the shapes differ, or a score is NaN.

    Example:
        >>> round(
        ...     average_precision(torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, False, True])),
        ...     6,
        ... )
        0.833333
    """
    _check_shapes(scores, matches, "n")
    probability, precision = precision_by_rank(
        scores.unsqueeze(0), matches.unsqueeze(0), len(scores)
    )
    return float((probability * precision).sum() / matches.sum())


def mean_average_precision(scores: Tensor, matches: Tensor, known: Tensor | None = None) -> float:
    """Return the mean of ``average_precision`` over the classes that have a match.

    Args:
        known: elements that count for each class; None for all. VOC leaves out its "difficult"
            elements.

    Shape:
        scores (C classes, n elements), matches (C, n) bool, known (C, n) bool.

    Returns:
        NaN if no class has a match.
    """
    _check_shapes(scores, matches, "C", "n")
    kept = torch.ones_like(matches) if known is None else known
    values = [
        average_precision(row[columns], truth[columns])
        for row, truth, columns in zip(scores, matches, kept, strict=True)
        if truth[columns].any()
    ]
    return sum(values) / len(values) if values else float("nan")


def spearman(scores: Tensor, targets: Tensor) -> float:
    """Return Spearman's correlation, in [-1, 1]: Pearson's correlation of the ranks.

    Equal values share their mean rank. Without ties it equals eq. (5.4) of the thesis; with ties
    eq. (5.4) is an approximation.

    Shape:
        scores (n,), targets (n,), n >= 2.

    Returns:
        NaN if all scores or all targets are equal.

    Raises:
        ValueError: the shapes differ, there are fewer than two values, or a value is not finite.

    Example:
        >>> round(spearman(torch.tensor([0.1, 0.9, 0.4]), torch.tensor([1.0, 3.0, 2.0])), 6)
        1.0
    """
    if scores.ndim != 1 or scores.shape != targets.shape or len(scores) < 2:
        raise ValueError(
            f"scores {tuple(scores.shape)} and targets {tuple(targets.shape)}: expected two "
            "vectors of equal length, at least 2"
        )
    pair = [check_scores(values.detach().double()) for values in (scores, targets)]
    if any(bool((values == values[0]).all()) for values in pair):
        return math.nan
    from scipy.stats import spearmanr  # imported here: scipy.stats takes a second

    return float(spearmanr(*(values.cpu().numpy() for values in pair)).statistic)


def _check_shapes(scores: Tensor, matches: Tensor, *dimensions: str) -> None:
    if scores.ndim != len(dimensions) or scores.shape != matches.shape:
        raise ValueError(
            f"scores {tuple(scores.shape)} and matches {tuple(matches.shape)}: expected "
            f"({', '.join(dimensions)}) of both"
        )
