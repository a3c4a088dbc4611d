"""Conditions that a model must meet: limits, floors, a minimal gain, and drops of single metrics that are ruled out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bifocal.metrics.typical_values import subset_lower_bound
from bifocal.promotion.comparison import RETRIEVAL, PairedScores, hits, image_totals, recall_scores

RECALL_SUM = "recall_sum"


@dataclass(frozen=True)
class Check:
    """One condition."""

    name: str
    reason: str = ""  # why the condition fails; empty if it holds
    value: float | None = None  # measured value; None if it could not be measured
    limit: float | None = None  # limit of ``value`` or of an end of its interval
    bound: float | None = None  # one-sided lower confidence bound of ``value``

    @property
    def passed(self) -> bool:
        """Whether the condition holds."""
        return not self.reason


def metric_scores(queries: pd.DataFrame, name: str, ks: Sequence[int]) -> list[PairedScores]:
    """Return per-query scores (%) whose means add up to ``recall_sum``, ``<direction>.R@<K>`` or a direction."""
    if name == RECALL_SUM:
        return recall_scores(queries, ks) if set(RETRIEVAL) <= set(queries["direction"]) else []
    direction, _, k = name.partition(".R@")
    rows = queries[queries["direction"] == direction]
    return [hits(rows, int(k or 1))] if len(rows) else []


def total(scores: Sequence[PairedScores]) -> tuple[float, float]:
    """Return the metric of the current model and of the reference."""
    return sum(float(score.current.mean()) for score in scores), sum(float(score.reference.mean()) for score in scores)


def limit_check(name: str, value: float, limit: float) -> Check:
    """Return whether ``value`` is at most ``limit``; NaN is not."""
    reason = "" if value <= limit else f"{name} is {value:.3g}, the limit is {limit:.3g}"
    return Check(name, reason, value, limit)


def lower_bound(scores: Sequence[PairedScores], alpha: float, seed: int) -> float:
    """Return the one-sided lower confidence bound of the difference in a metric, current model minus reference."""
    current, reference, counts = image_totals(scores)
    return subset_lower_bound(current - reference, counts, alpha, seed)


def floor_check(ranks: pd.DataFrame, name: str, ks: Sequence[int], floor: float, alpha: float, seed: int) -> Check:
    """Return whether a metric of one model is at least ``floor``, in percent, at the level ``alpha``."""
    single = ranks.rename(columns={"rank": "rank_current"}).assign(rank_reference=np.inf)
    scores = metric_scores(single, name, ks)
    if not scores:
        return Check(f"floor.{name}", f"{name} was not measured, its floor is {floor:g}", limit=floor)
    value, _ = total(scores)
    low = lower_bound(scores, alpha, seed)
    reason = f"{name} is {value:.2f}, its confidence bound {low:.2f}: the floor is {floor:g}"
    return Check(f"floor.{name}", "" if low >= floor else reason, value, floor, low)


def guard_check(queries: pd.DataFrame, name: str, ks: Sequence[int], max_drop: float, alpha: float, seed: int) -> Check:
    """Return whether a drop of a metric by more than ``max_drop`` percentage points is ruled out: non-inferiority."""
    scores = metric_scores(queries, name, ks)
    if not scores:
        reason = f"{name} was not measured for both models on the same queries, so a drop cannot be ruled out"
        return Check(f"drop.{name}", reason, limit=-max_drop)
    current, reference = total(scores)
    low = lower_bound(scores, alpha, seed)
    reason = (
        f"{name} changes by {current - reference:+.2f}, its confidence bound is {low:+.2f}: a drop of more than "
        f"{max_drop:g} is not ruled out"
    )
    return Check(f"drop.{name}", "" if low >= -max_drop else reason, current - reference, -max_drop, low)


def gain_check(
    queries: pd.DataFrame, ks: Sequence[int], min_gain: float, alpha: float, seed: int, name: str = "gain"
) -> Check:
    """Return whether the recall sum gains more than ``min_gain`` percentage points, at the level ``alpha``."""
    scores = metric_scores(queries, RECALL_SUM, ks)
    if not scores:
        return Check(name, "the recall sum was not measured", limit=min_gain)
    current, reference = total(scores)
    low = lower_bound(scores, alpha, seed)
    reason = (
        f"the gain in the recall sum is {current - reference:+.2f}, at least {low:+.2f} with a confidence of "
        f"{100 * (1 - alpha):.4g} %: more than {min_gain:g} is required"
    )
    return Check(name, "" if low > min_gain else reason, current - reference, min_gain, low)
