"""The rules of promotion.yaml, applied to two versions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from bifocal.metrics.bootstrap import bootstrap_difference
from pipelines.promotion.candidate import Evidence
from pipelines.yaml_model import declared
from runtime.spec import StrictModel

FILE = Path(__file__).with_name("promotion.yaml")
DIRECTIONS = ("caption_retrieval", "image_retrieval")
POINTING = "pointing"


class Rules(StrictModel):
    """The file ``promotion.yaml``."""

    model: str = Field(min_length=1)
    candidate: str = Field(description="alias")
    champion: str = Field(description="alias")
    previous: str = Field(description="alias")
    recall_at: list[int] = Field(min_length=1)
    resamples: int = Field(ge=100)
    confidence: float = Field(gt=0.5, lt=1)
    least_gain: float = Field(ge=0, description="percentage points of the recall sum")
    guards: dict[str, float] = Field(description="percentage points that a figure may fall by")
    parity: float = Field(gt=0)
    backbone_parity: float = Field(gt=0)
    latency_ms: float = Field(gt=0)
    size_mb: float = Field(gt=0)
    seed: int = Field(ge=0)
    wait: float = Field(ge=0, description="seconds")


@dataclass(frozen=True)
class Decision:
    """Whether the candidate becomes the champion.

    Attributes:
        reasons: against it; none if it is promoted.
        figures: every number that was looked at.
    """

    reasons: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def promoted(self) -> bool:
        """Whether it does."""
        return not self.reasons


def read(path: Path = FILE) -> Rules:
    """The file.

    Raises:
        ValueError: it is no YAML, or an entry is wrong.
    """
    return declared(path, Rules.model_validate)


def decide(rules: Rules, candidate: Evidence, champion: Evidence | None) -> Decision:
    """Apply the rules; without a champion only those that need none."""
    decision = Decision()
    figures, reasons = decision.figures, decision.reasons
    for name, value, limit in (
        ("parity", candidate.parity, rules.parity),
        ("backbone_parity", candidate.backbone_parity, rules.backbone_parity),
        ("latency_ms", candidate.latency_ms, rules.latency_ms),
        ("size_mb", candidate.size_mb, rules.size_mb),
    ):
        figures[name] = value
        # Not "value > limit", which NaN passes.
        if not value <= limit:
            reasons.append(f"{name} is {value:.3g}, {limit:.3g} is allowed")
    broken = int((~np.isfinite(candidate.ranks["rank"])).sum())
    if broken or not len(candidate.ranks):
        reasons.append(f"{broken} of {len(candidate.ranks)} ranks are not finite")
        return decision
    tested = (champion or candidate).ranks
    leaked = candidate.trained_on & set(tested["content"])
    figures["leaked"] = len(leaked)
    if leaked:
        reasons.append(f"it was trained on {len(leaked)} images of the test set")
    if champion:
        figures |= {f"candidate.{name}": value for name, value in summary(candidate.ranks, rules).items()}
        figures |= {f"champion.{name}": value for name, value in summary(champion.ranks, rules).items()}
        reasons.extend(_compare(rules, candidate.ranks, champion.ranks, figures))
    return decision


def summary(ranks: pd.DataFrame, rules: Rules) -> dict[str, float]:
    """R@K of each direction, their sum, and the accuracy of pointing if it is there; percent."""
    found = {
        f"{direction}.R@{k}": 100 * float((ranks.loc[ranks["direction"] == direction, "rank"] < k).mean())
        for direction in DIRECTIONS
        for k in rules.recall_at
    }
    found["recall_sum"] = sum(found.values())
    pointed = ranks[ranks["direction"] == POINTING]
    return found | ({POINTING: 100 * float((pointed["rank"] < 1).mean())} if len(pointed) else {})


def _compare(rules: Rules, candidate: pd.DataFrame, champion: pd.DataFrame, figures: dict[str, float]) -> Iterator[str]:
    keys = ["direction", "query", "image_id", "content"]
    here, there = (frame[frame["direction"].isin(DIRECTIONS)] for frame in (candidate, champion))
    both = here.merge(there, on=keys, suffixes=("_candidate", "_champion"), validate="one_to_one")
    if len(both) != len(there) or len(both) != len(here):
        yield (
            f"{len(both)} of the champion's {len(there)} queries are among the candidate's {len(here)}: evaluate it "
            "on the champion's test set (the hash of that dataset is a tag of the version)"
        )
        return
    first, second, counts = _totals(both, rules.recall_at)
    differences = 100 * bootstrap_difference(first, second, counts, rules.resamples, rules.seed)
    tail = (1 - rules.confidence) / 2
    figures["gain"] = figures["candidate.recall_sum"] - figures["champion.recall_sum"]
    figures["gain.low"], figures["gain.high"] = (float(differences.quantile(q)) for q in (tail, 1 - tail))
    if figures["gain.low"] <= rules.least_gain:
        yield (
            f"the recall sum differs by {figures['gain']:+.2f}, with {100 * rules.confidence:g} % confidence from "
            f"{figures['gain.low']:+.2f} to {figures['gain.high']:+.2f}; all of it must be above {rules.least_gain:g}"
        )
    for name, allowed in rules.guards.items():
        if f"candidate.{name}" in figures and f"champion.{name}" in figures:
            loss = figures[f"champion.{name}"] - figures[f"candidate.{name}"]
            if loss > allowed:
                yield f"{name} falls by {loss:.2f}, {allowed:g} is allowed"


def _totals(both: pd.DataFrame, ks: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Hits of either model, and queries, of each image (rows) and each figure (columns)."""
    images = pd.Index(sorted(both["image_id"].unique()))
    columns: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    for direction in DIRECTIONS:
        rows = both[both["direction"] == direction]
        for k in ks:
            hits = (rows["rank_candidate"] < k, rows["rank_champion"] < k, rows["rank_champion"] >= 0)
            for column, hit in zip(columns, hits, strict=True):
                total = hit.groupby(rows["image_id"]).sum().reindex(images, fill_value=0)
                column.append(torch.tensor(total.to_numpy(dtype=np.float64)))
    first, second, counts = (torch.stack(column, dim=1) for column in columns)
    return first, second, counts
