"""Confidence intervals that hold at every look, for ratios and quantiles of the searches of two
releases.

A schedule looks at a running comparison again and again. An interval for one look would exclude the
truth at some look much more often than its level says. These intervals exclude it at any look with
probability ``alpha``.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Interval = tuple[float, float]
MIN_GROUPS = 20
"""Fewer groups of clients give no interval."""


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval; None if there are too few clients for one."""

    value: float
    interval: Interval | None


def boundary(searches: float, alpha: float, planned: float) -> float:
    """Return the half width, in standard errors, of an interval that holds at every look
    (Waudby-Smith et al., Annals of Statistics 2024, theorem 2.2), narrowest at ``planned``
    searches.
    """
    twice = -2 * math.log(alpha)
    time = searches / planned * (twice + math.log(twice + 1))
    return math.sqrt(2 * (time + 1) / time * math.log(math.sqrt(time + 1) / alpha))


def estimate_ratio(sums: Array, counts: Array, alpha: float, planned: float) -> Estimate | None:
    """Return sum / count over independent groups (G,) of clients, with an interval; None without
    any count."""
    if not counts.sum():
        return None
    value = float(sums.sum() / counts.sum())
    return _estimate(value, _leave_out(sums, counts), counts > 0, counts.sum(), alpha, planned)


def estimate_difference(
    first: tuple[Array, Array], second: tuple[Array, Array], alpha: float, planned: float
) -> Estimate | None:
    """Return ``second`` minus ``first`` of two ratios with its jackknife interval; None if one has
    no count."""
    if not first[1].sum() or not second[1].sum():
        return None
    value = float(second[0].sum() / second[1].sum() - first[0].sum() / first[1].sum())
    replicates = _leave_out(*second) - _leave_out(*first)
    used = (first[1] > 0) | (second[1] > 0)
    return _estimate(value, replicates, used, min(first[1].sum(), second[1].sum()), alpha, planned)


def _leave_out(sums: Array, counts: Array) -> Array:
    """Return the ratio without each group, (G,)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios: Array = (sums.sum() - sums) / (counts.sum() - counts)
    return ratios


def _estimate(
    value: float, replicates: Array, used: Array, searches: float, alpha: float, planned: float
) -> Estimate:
    replicates = replicates[used]
    groups = len(replicates)
    if groups < MIN_GROUPS or not np.isfinite(replicates).all():
        return Estimate(value, None)
    error = math.sqrt((groups - 1) / groups * float(((replicates - replicates.mean()) ** 2).sum()))
    # If nothing was counted, the spread is zero. The spread of two events is used in its place.
    half = boundary(searches, alpha, planned) * max(error, math.sqrt(2) / searches)
    return Estimate(value, (value - half, value + half))


def estimate_quantile(
    histogram: Array, edges: Array, share: float, alpha: float, planned: float
) -> Estimate | None:
    """Return a quantile of a histogram with an interval between order statistics; None if it is
    empty."""
    count = int(histogram.sum())
    if not count:
        return None
    value = _value_of_rank(histogram, edges, share * count)
    half = boundary(count, alpha, planned) * math.sqrt(count * share * (1 - share))
    low, high = share * count - half, share * count + half
    lowest = _value_of_rank(histogram, edges, low) if low > 0 else 0.0
    highest = _value_of_rank(histogram, edges, high) if high < count else math.inf
    return Estimate(value, (lowest, highest))


def _value_of_rank(histogram: Array, edges: Array, rank: float) -> float:
    """Return the value below which ``rank`` values are, linear between two edges; infinite above
    the last edge."""
    below = np.concatenate([[0], np.cumsum(histogram)])
    cell = int(np.searchsorted(below[1:], rank, "left"))
    if cell >= len(edges):
        return math.inf
    low = edges[cell - 1] if cell else 0.0
    return float(low + (edges[cell] - low) * (rank - below[cell]) / max(1, histogram[cell]))
