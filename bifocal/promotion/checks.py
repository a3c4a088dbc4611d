"""Conditions that a model must meet: limits, floors, a minimal gain, and drops of single metrics
that are ruled out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from bifocal.evaluation.rank_tables import ZERO_SHOT
from bifocal.metrics.bootstrap import subset_lower_bound
from bifocal.promotion.comparison import RECALL_SUM, RETRIEVAL, join_queries

ANSWER = (
    "ship the contrastive model unchanged: the initialization ZeroShot without any phase of "
    "training registers it"
)
EVALUATE = "evaluate with Baselines in evaluate.evaluators, and register the model again"


@dataclass(frozen=True)
class Check:
    """One condition."""

    name: str
    reason: str = ""  # why the condition fails; empty if it holds
    value: float | None = None  # measured value; None if it could not be measured
    limit: float | None = None  # limit of ``value`` or of an end of its interval
    bound: float | None = None  # one-sided lower confidence bound of ``value``
    setting: str = ""  # criterion with a value that the model meets
    cost: str = ""  # uncertainty that this value accepts, or the reason for no value

    @property
    def passed(self) -> bool:
        """Whether the condition holds."""
        return not self.reason

    def record(self) -> dict[str, Any]:
        """Return the result as values for JSON."""
        values = {"name": self.name, "reason": self.reason, "value": self.value}
        return values | {"limit": self.limit, "bound": self.bound, "passed": self.passed}

    def explain(self, policy: str) -> str:
        """Return the reason with the setting of the file ``policy`` that would accept the model,
        and its cost."""
        detail = (
            f"it passes with '{self.setting}' in {policy}: {self.cost}"
            if self.setting
            else self.cost
        )
        return f"{self.reason} ({detail})" if detail else self.reason


def uncertainty(images: int) -> str:
    """Return how far a recall on ``images`` may be from its true value, at most, with a confidence
    of 95 %."""
    return f"±{98 / math.sqrt(images):.0f} points"


def _rounded(value: float, up: bool) -> str:
    """Return a finite number with about three digits that is not below ``value``, or not above
    it."""
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2) if value else 1.0
    return f"{(math.ceil if up else math.floor)(value / unit) * unit:.6g}"


def measure(
    queries: pd.DataFrame, name: str, ks: Sequence[int], alpha: float, seed: int
) -> tuple[float, float, float] | None:
    """Return ``recall_sum``, ``<direction>.R@<K>`` or a direction's accuracy of both models, and
    the one-sided lower confidence bound of the difference, current model minus reference; None if
    the queries lack a direction.
    """
    direction, _, k = name.partition(".R@")
    metrics = (
        [(part, cut) for part in RETRIEVAL for cut in ks]
        if name == RECALL_SUM
        else [(direction, int(k or 1))]
    )
    if not {part for part, _ in metrics} <= set(queries["direction"]):
        return None
    of_metric = [queries[queries["direction"] == part] for part, _ in metrics]
    image_ids = pd.Index(sorted({image for part in of_metric for image in part["image_id"]}))
    gains, counts = torch.zeros(2, len(image_ids), len(metrics), dtype=torch.float64)
    values = []
    for column, (part, (_, cut)) in enumerate(zip(of_metric, metrics, strict=True)):
        hits = 100 * (part[["rank_current", "rank_reference"]] < cut).to_numpy(np.float64)
        rows = torch.from_numpy(image_ids.get_indexer(part["image_id"]))
        gains[:, column].index_add_(0, rows, torch.from_numpy(hits[:, 0] - hits[:, 1]))
        counts[:, column] = rows.bincount(minlength=len(image_ids))
        values.append(hits.mean(axis=0))
    current, reference = np.sum(values, axis=0).tolist()
    return current, reference, subset_lower_bound(gains, counts, alpha, seed)


def limit_check(name: str, value: float, limit: float, key: str = "") -> Check:
    """Return whether ``value`` is at most ``limit``, the criterion ``key``, by default ``name``;
    NaN is not."""
    reason = "" if value <= limit else f"{name} is {value:.3g}, the limit is {limit:.3g}"
    setting = f"{key or name}: {_rounded(value, up=True)}" if math.isfinite(value) else ""
    return Check(
        name,
        reason,
        value,
        limit,
        setting=setting,
        cost="later models may reach it too" if setting else "",
    )


def floor_check(
    ranks: pd.DataFrame, name: str, ks: Sequence[int], floor: float, alpha: float, seed: int
) -> Check:
    """Return whether a metric of one model is at least ``floor``, in percent, at the level
    ``alpha``."""
    single = ranks.rename(columns={"rank": "rank_current"}).assign(rank_reference=np.inf)
    measured = measure(single, name, ks, alpha, seed)
    if measured is None:
        return Check(
            f"floor.{name}", f"{name} was not measured, its floor is {floor:g}", limit=floor
        )
    value, _, low = measured
    reason = f"{name} is {value:.2f}, its confidence bound {low:.2f}: the floor is {floor:g}"
    setting = f"floors.{name}: {_rounded(low, up=False)}" if low > 0 else ""
    cost = "a model as weak as this one may become the champion" if setting else ""
    return Check(f"floor.{name}", "" if low >= floor else reason, value, floor, low, setting, cost)


def guard_check(
    queries: pd.DataFrame, name: str, ks: Sequence[int], max_drop: float, alpha: float, seed: int
) -> Check:
    """Return whether a drop of a metric by more than ``max_drop`` percentage points is ruled out:
    non-inferiority."""
    measured = measure(queries, name, ks, alpha, seed)
    if measured is None:
        reason = (
            f"{name} was not measured for both models on the same queries, so a drop cannot be "
            "ruled out"
        )
        return Check(f"drop.{name}", reason, limit=-max_drop)
    current, reference, low = measured
    reason = (
        f"{name} changes by {current - reference:+.2f}, its confidence bound is {low:+.2f}: a "
        f"drop of more than {max_drop:g} is not ruled out"
    )
    setting = f"max_drops.{name}: {_rounded(-low, up=True)}"
    cost = "a drop of as much stays unseen, and more test images see a smaller one"
    passed = low >= -max_drop
    return Check(
        f"drop.{name}", "" if passed else reason, current - reference, -max_drop, low, setting, cost
    )


def gain_check(
    queries: pd.DataFrame,
    ks: Sequence[int],
    min_gain: float,
    alpha: float,
    seed: int,
    name: str = "gain",
) -> Check:
    """Return whether the recall sum gains, and by more than ``min_gain`` percentage points at the
    level ``alpha``; below 0, this is the loss to rule out."""
    measured = measure(queries, RECALL_SUM, ks, alpha, seed)
    if measured is None:
        return Check(name, "the recall sum was not measured", limit=min_gain)
    current, reference, low = measured
    gain = current - reference
    required = "a measured gain" if low > min_gain else f"more than {min_gain:g}"
    reason = (
        f"the gain in the recall sum is {gain:+.2f}, at least {low:+.2f} with a confidence of "
        f"{100 * (1 - alpha):.4g} %: {required} is required"
    )
    if low > 0:
        cost = "two seeds of one recipe may differ by as much"
    elif gain > 0:
        cost = "smaller losses are not ruled out; more test images, or fewer looks, raise the bound"
    else:
        cost = "no min_gain accepts it: it measures no gain"
    setting = f"min_gain: {_rounded(low - abs(low) / 100 - 1e-9, up=False)}" if gain > 0 else ""
    passed = gain > 0 and low > min_gain
    return Check(name, "" if passed else reason, gain, min_gain, low, setting, cost)


def zero_shot_check(
    ranks: pd.DataFrame,
    image_ids: set[str],
    ks: list[int],
    min_gain: float,
    alpha: float,
    seed: int,
) -> Check | None:
    """Check whether trained heads gain over the contrastive model below them; None without ranks of
    that model."""
    compared = ranks[ranks["image_id"].isin(image_ids)]
    floor = compared[compared["direction"].str.startswith(ZERO_SHOT)]
    if not len(floor):
        return None
    floor = floor.assign(direction=floor["direction"].str.removeprefix(ZERO_SHOT))
    own = compared[compared["direction"].isin(RETRIEVAL)]
    try:
        queries = join_queries(own, floor)
    except ValueError as error:
        return Check(
            "zero_shot",
            f"the gain over the zero-shot model was not measured: {error}",
            limit=min_gain,
        )
    if len(queries) < len(own):
        return Check(
            "zero_shot", f"{len(queries)} of {len(own)} queries have zero-shot ranks; {EVALUATE}"
        )
    check = gain_check(queries, ks, max(min_gain, 0.0), alpha, seed, "zero_shot")
    if check.bound is not None and check.bound <= 0:
        check = replace(check, setting="", cost="")  # no min_gain is below 0 here
    if len(queries) == len(floor) and (queries["rank_current"] == queries["rank_reference"]).all():
        return replace(check, reason="")
    reason, cost = (
        f"over the zero-shot model, {check.reason}; {ANSWER}",
        check.cost if check.setting else "",
    )
    return check if check.passed else replace(check, reason=reason, cost=cost)
