"""Report on two releases that answer the searches of real clients."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from bifocal.serving.canary.counts import EDGES, GROUPS, Counts
from bifocal.serving.canary.intervals import Estimate, estimate_difference, estimate_quantile, estimate_ratio

Mode = Literal["canary", "shadow"]
RUNNING = "running"
"""State of a comparison that has a candidate."""
ALPHA, PLANNED = 0.05, 1000.0
"""Error probability of the intervals that the service shows, and the searches at which they are narrowest."""
OVERLAP_DEPTH = 10
QUANTILES = {"latency_p50": 0.5, "latency_p99": 0.99}
RATES = ("errors", "nothing_found", "relevance", "clicks")


@dataclass(frozen=True)
class Release:
    """Identity of a release: a name for people, the version number, and the hash of its files."""

    name: str
    version: int | None
    digest: str | None

    def same_model(self, other: "Release") -> bool:
        """Whether both are one registered version, whose collection may have been refreshed, or one release."""
        if self.version is None or other.version is None:
            return self == other
        return self.version == other.version


@dataclass(frozen=True)
class Metric:
    """A metric of both releases."""

    name: str  # "errors", "nothing_found", "clicks", "relevance", "latency_p50", "latency_p99" (s) or "overlap_at_10"
    champion: Estimate | None
    candidate: Estimate | None
    comparison: Estimate | None  # candidate minus champion; the ratio of latencies; the overlap


@dataclass
class Report:
    """Sums of a comparison."""

    mode: Mode
    share: float  # of the clients that the candidate answers (canary), or whose searches it repeats (shadow)
    champion: Release
    candidate: Release
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    counts_champion: Counts = field(default_factory=Counts)
    counts_candidate: Counts = field(default_factory=Counts)
    overlap: NDArray[np.float64] = field(default_factory=lambda: np.zeros(GROUPS))
    compared: NDArray[np.float64] = field(default_factory=lambda: np.zeros(GROUPS))
    dropped: int = 0  # searches that were not repeated because the candidate was too slow
    id: str = field(default_factory=lambda: uuid4().hex)  # another one after a restart, and in each replica

    def add_overlap(self, group: int, champion: Sequence[str], candidate: Sequence[str]) -> None:
        """Count the overlap of the results of one search."""
        self.overlap[group] += overlap_at_10(champion, candidate)
        self.compared[group] += 1

    def metrics(self, alpha: float = ALPHA, planned: float = PLANNED) -> list[Metric]:
        """Return all metrics with intervals of level 1 - alpha, which hold at every look."""
        parts = self.counts_champion, self.counts_candidate
        found = []
        for name in RATES:
            first, second = (_sums(counts, name) for counts in parts)
            measured = name != "clicks" or (self.mode == "canary" and first[0].sum() + second[0].sum() > 0)
            if not measured:
                found.append(Metric(name, None, None, None))
                continue
            champion, candidate = (estimate_ratio(*sums, alpha, planned) for sums in (first, second))
            found.append(Metric(name, champion, candidate, estimate_difference(first, second, alpha, planned)))
        for name, share in QUANTILES.items():
            champion, candidate = (estimate_quantile(counts.latency, EDGES, share, alpha, planned) for counts in parts)
            # Both intervals hold at once with probability 1 - alpha.
            halves = (estimate_quantile(counts.latency, EDGES, share, alpha / 2, planned) for counts in parts)
            found.append(Metric(name, champion, candidate, _ratio(*halves)))
        if self.mode == "shadow":
            overlaps = estimate_ratio(self.overlap, self.compared, alpha, planned)
            found.append(Metric("overlap_at_10", None, None, overlaps))
        return found

    def __add__(self, other: "Report") -> "Report":
        """Return the sums of two replicas; raise ``ValueError`` if they compare other releases, or in another way."""
        same = {name: getattr(self, name) == getattr(other, name) for name in ("mode", "share")}
        same |= {name: getattr(self, name).same_model(getattr(other, name)) for name in ("champion", "candidate")}
        for name, equal in same.items():
            if not equal:
                raise ValueError(
                    f"two replicas differ in {name}: {getattr(self, name)} and {getattr(other, name)}; wait until both "
                    "have loaded the same releases"
                )
        return replace(
            self, since=min(self.since, other.since), counts_champion=self.counts_champion + other.counts_champion,
            counts_candidate=self.counts_candidate + other.counts_candidate, overlap=self.overlap + other.overlap,
            compared=self.compared + other.compared, dropped=self.dropped + other.dropped,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the sums, with the metrics at the level ``ALPHA``."""
        return {
            "mode": self.mode, "share": self.share, "since": self.since, "champion": asdict(self.champion),
            "candidate": asdict(self.candidate), "metrics": [metric_json(metric) for metric in self.metrics()],
            "counts_champion": self.counts_champion.to_json(), "counts_candidate": self.counts_candidate.to_json(),
            "overlap": np.round(self.overlap, 6).tolist(), "compared": self.compared.tolist(), "dropped": self.dropped,
            "id": self.id,
        }  # fmt: skip

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Report":
        """Read a report; raise ``ValueError`` for another text."""
        try:
            mode: Mode = content["mode"]
            if mode not in get_args(Mode):
                raise ValueError(f"mode is {mode!r}")
            parts = [Counts.from_json(content[f"counts_{arm}"]) for arm in ("champion", "candidate")]
            champion, candidate = (Release(**content[arm]) for arm in ("champion", "candidate"))
            overlap, compared = (np.asarray(content[name], np.float64) for name in ("overlap", "compared"))
            if overlap.shape != (GROUPS,) or compared.shape != (GROUPS,):
                raise ValueError("overlap or compared has another length")
            return cls(
                mode, float(content["share"]), champion, candidate, str(content["since"]), parts[0], parts[1], overlap,
                compared, int(content["dropped"]), str(content["id"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a report of bifocal serve: {error}") from error


def overlap_at_10(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the common results among the first ten of two answers, divided by the larger number of them; in [0, 1]."""
    one, other = set(first[:OVERLAP_DEPTH]), set(second[:OVERLAP_DEPTH])
    larger = max(len(one), len(other))
    return len(one & other) / larger if larger else 1.0


def metric_json(metric: Metric) -> dict[str, Any]:
    """Return a metric as JSON; an interval without an upper end has null there."""
    return {"name": metric.name} | {
        name: None if value is None else {
            "value": _finite(value.value),
            "interval": None if value.interval is None else [_finite(end) for end in value.interval],
        }
        for name in ("champion", "candidate", "comparison") for value in (getattr(metric, name),)
    }  # fmt: skip


def _sums(counts: Counts, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return numerator and denominator of a rate."""
    answered = counts.searches - counts.errors
    return {
        "errors": (counts.errors, counts.searches),
        "nothing_found": (counts.nothing, answered),
        "relevance": (counts.relevance, counts.calibrated),
        "clicks": (counts.clicked, answered),
    }[name]


def _ratio(first: Estimate | None, second: Estimate | None) -> Estimate | None:
    if first is None or second is None or first.interval is None or second.interval is None or not first.value:
        return None
    (low, high), (other_low, other_high) = first.interval, second.interval
    most = other_high / low if low else math.inf
    return Estimate(second.value / first.value, (other_low / high, most))


def _finite(value: float) -> float | None:
    return round(value, 9) if math.isfinite(value) else None
