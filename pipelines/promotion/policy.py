"""``promotion.yaml``: when a candidate becomes the champion."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field

from bifocal.evaluation.comparison import compare_recall_sums, join_queries
from pipelines.promotion.candidate import VersionMetrics
from pipelines.yaml_model import load_yaml_model
from runtime.spec import StrictModel

FILE = Path(__file__).with_name("promotion.yaml")
DIRECTIONS = ("caption_retrieval", "image_retrieval")
POINTING = "pointing"


class PromotionPolicy(StrictModel):
    """The file ``promotion.yaml``."""

    model: str = Field(min_length=1, description="name in the registry")
    candidate: str = Field(description="alias")
    champion: str = Field(description="alias")
    previous: str = Field(description="alias")
    recall_at: list[int] = Field(min_length=1)
    resamples: int = Field(ge=100)
    confidence: float = Field(gt=0.5, lt=1)
    min_gain: float = Field(ge=0, description="percentage points of the recall sum")
    max_drops: dict[str, float] = Field(description="percentage points by metric")
    parity: float = Field(gt=0)
    backbone_parity: float = Field(gt=0)
    latency_ms: float = Field(gt=0)
    size_mb: float = Field(gt=0)
    seed: int = Field(ge=0)
    lock_timeout: float = Field(ge=0, description="seconds")


@dataclass(frozen=True)
class Decision:
    """Whether the candidate becomes the champion.

    Attributes:
        reasons: reasons against the promotion; empty if the candidate is promoted.
        metrics: every compared value.
    """

    reasons: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def promoted(self) -> bool:
        """Whether the candidate becomes the champion."""
        return not self.reasons


def load(path: Path = FILE) -> PromotionPolicy:
    """Read the file.

    Raises:
        ValueError: the file is not YAML, or an entry is invalid.
    """
    return load_yaml_model(path, PromotionPolicy.model_validate)


def decide(policy: PromotionPolicy, candidate: VersionMetrics, champion: VersionMetrics | None) -> Decision:
    """Apply the policy; without a champion, only its absolute limits."""
    decision = Decision()
    metrics, reasons = decision.metrics, decision.reasons
    for name, value, limit in (
        ("parity", candidate.parity, policy.parity),
        ("backbone_parity", candidate.backbone_parity, policy.backbone_parity),
        ("latency_ms", candidate.latency_ms, policy.latency_ms),
        ("size_mb", candidate.size_mb, policy.size_mb),
    ):
        metrics[name] = value
        # NaN fails "value <= limit", but would pass "value > limit".
        if not value <= limit:
            reasons.append(f"{name} is {value:.3g}, the limit is {limit:.3g}")
    invalid = int((~np.isfinite(candidate.ranks["rank"])).sum())
    if invalid or not len(candidate.ranks):
        reasons.append(f"{invalid} of {len(candidate.ranks)} ranks are not finite")
        return decision
    test_images = set((champion or candidate).ranks["content"])
    leaked = candidate.training_images & test_images
    metrics["leaked"] = len(leaked)
    if leaked:
        reasons.append(f"the candidate was trained on {len(leaked)} images of the test set")
    if champion:
        metrics |= {f"candidate.{name}": value for name, value in summarize(candidate.ranks, policy).items()}
        metrics |= {f"champion.{name}": value for name, value in summarize(champion.ranks, policy).items()}
        reasons.extend(_compare(policy, candidate.ranks, champion.ranks, metrics))
    return decision


def summarize(ranks: pd.DataFrame, policy: PromotionPolicy) -> dict[str, float]:
    """Return R@K of both directions, their sum, and the pointing accuracy if it was measured; in percent."""
    metrics = {
        f"{direction}.R@{k}": 100 * float((ranks.loc[ranks["direction"] == direction, "rank"] < k).mean())
        for direction in DIRECTIONS
        for k in policy.recall_at
    }
    metrics["recall_sum"] = sum(metrics.values())
    pointing = ranks[ranks["direction"] == POINTING]
    if len(pointing):
        metrics[POINTING] = 100 * float((pointing["rank"] < 1).mean())
    return metrics


def _compare(
    policy: PromotionPolicy, candidate: pd.DataFrame, champion: pd.DataFrame, metrics: dict[str, float]
) -> Iterator[str]:
    """Add the gain and its interval to ``metrics``; yield the reasons against a promotion."""
    current, former = (frame[frame["direction"].isin(DIRECTIONS)] for frame in (candidate, champion))
    pairs = join_queries(current, former)
    if len(pairs) != len(former) or len(pairs) != len(current):
        yield (
            f"the candidate's {len(current)} queries and the champion's {len(former)} have {len(pairs)} in common: "
            "evaluate the candidate on the champion's test set (the version tag hash.dataset identifies it)"
        )
        return
    sums = compare_recall_sums(
        pairs, policy.recall_at, resamples=policy.resamples, seed=policy.seed, level=policy.confidence
    )
    metrics["gain"], (metrics["gain.low"], metrics["gain.high"]) = sums.gain, sums.interval
    if metrics["gain.low"] <= policy.min_gain:
        yield (
            f"the gain in the recall sum is {metrics['gain']:+.2f}, its {100 * policy.confidence:g} % interval "
            f"{metrics['gain.low']:+.2f} to {metrics['gain.high']:+.2f}: the whole interval must be above "
            f"{policy.min_gain:g}"
        )
    for name, allowed in policy.max_drops.items():
        if f"candidate.{name}" in metrics and f"champion.{name}" in metrics:
            drop = metrics[f"champion.{name}"] - metrics[f"candidate.{name}"]
            if drop > allowed:
                yield f"{name} drops by {drop:.2f}, the limit is {allowed:g}"
