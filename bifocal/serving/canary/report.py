"""Report on two releases that answer the searches of real clients: sums by groups of clients, which
can be added up."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from bifocal.durable import plain
from bifocal.serving.canary.intervals import (
    Estimate,
    estimate_difference,
    estimate_quantile,
    estimate_ratio,
)

Mode = Literal["canary", "shadow"]
RUNNING = "running"
"""State of a comparison that has a candidate."""
GROUPS = 100
"""Groups of clients, by a hash of the client."""
EDGES = 1e-4 * 1.05 ** np.arange(285)
"""Edges of the histogram of latencies, in seconds: from 0.1 ms to 104 s in steps of 5 %."""
ALPHA, PLANNED = 0.05, 1000.0
"""Error probability of the intervals that the service shows, and the searches at which they are
narrowest."""
OVERLAP_DEPTH = 10
QUANTILES = {"latency_p50": 0.5, "latency_p99": 0.99}
RATES = ("errors", "nothing_found", "relevance", "clicks")


@dataclass(frozen=True)
class ClientBucket:
    """Place of a client among all clients, by a hash."""

    position: float  # in [0, 1), uniform and independent of the group
    group: int  # of clients, for confidence intervals

    @classmethod
    def of(cls, client: str, salt: str) -> "ClientBucket":
        """Return the place of a client; another salt gives other places."""
        digest = hashlib.sha256(f"{salt}\0{client}".encode("utf-8", "replace")).digest()
        return cls(int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16]) % GROUPS)


def _zeros() -> NDArray[np.float64]:
    return np.zeros(GROUPS)


@dataclass
class Counts:
    """Sums over first-page searches of one release; each array but ``latency`` has a number per
    group of clients."""

    searches: NDArray[np.float64] = field(default_factory=_zeros)  # with failed ones
    errors: NDArray[np.float64] = field(default_factory=_zeros)
    nothing: NDArray[np.float64] = field(
        default_factory=_zeros
    )  # no result, or none above the calibrated threshold
    calibrated: NDArray[np.float64] = field(
        default_factory=_zeros
    )  # searches of a sentence by a calibrated index
    relevance: NDArray[np.float64] = field(
        default_factory=_zeros
    )  # sum of the first results' probabilities
    clicked: NDArray[np.float64] = field(default_factory=_zeros)  # answers with a click
    latency: NDArray[np.float64] = field(
        default_factory=lambda: np.zeros(len(EDGES) + 1)
    )  # histogram over EDGES

    def add_answer(self, group: int, found: bool, relevance: float | None, seconds: float) -> None:
        """Count an answered search; `relevance` is 0 without a result, and None if the index is not
        calibrated."""
        self.searches[group] += 1
        self.nothing[group] += not found
        if relevance is not None:
            self.calibrated[group] += 1
            self.relevance[group] += relevance
        self.latency[np.searchsorted(EDGES, seconds, "right")] += 1

    def add_error(self, group: int) -> None:
        """Count a failed search."""
        self.searches[group] += 1
        self.errors[group] += 1

    def add_click(self, group: int) -> None:
        """Count an answer with a click."""
        self.clicked[group] += 1

    def __add__(self, other: "Counts") -> "Counts":
        """Return the sums of two replicas."""
        return Counts(
            *(getattr(self, part.name) + getattr(other, part.name) for part in fields(self))
        )

    def to_json(self) -> dict[str, list[float]]:
        """Return the sums as lists."""
        return {part.name: np.round(getattr(self, part.name), 6).tolist() for part in fields(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Counts":
        """Read the sums; raise ``ValueError`` if a list is missing or has another length."""
        empty = cls()
        found = {
            part.name: np.asarray(content.get(part.name, []), dtype=np.float64)
            for part in fields(cls)
        }
        for name, values in found.items():
            if values.shape != getattr(empty, name).shape:
                raise ValueError(
                    f"{name} has the shape {values.shape}, expected {getattr(empty, name).shape}"
                )
        return cls(**found)


@dataclass(frozen=True)
class ReleaseIdentity:
    """Identity of a release: a name for people, the version number, and the hash of its files."""

    name: str
    version: int | None
    digest: str | None

    def same_model(self, other: "ReleaseIdentity") -> bool:
        """Whether both are one registered version, whose collection may have been refreshed, or one
        release."""
        if self.version is None or other.version is None:
            return self == other
        return self.version == other.version


@dataclass(frozen=True)
class Metric:
    """A metric of both releases."""

    # "errors", "nothing_found", "clicks", "relevance", "latency_p50", "latency_p99" (s) or
    # "overlap_at_10"
    name: str
    champion: Estimate | None
    candidate: Estimate | None
    comparison: Estimate | None  # candidate minus champion; the ratio of latencies; the overlap


@dataclass
class Report:
    """Sums of a comparison."""

    mode: Mode
    # of the clients that the candidate answers (canary), or whose searches it repeats (shadow)
    share: float
    champion: ReleaseIdentity
    candidate: ReleaseIdentity
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    counts_champion: Counts = field(default_factory=Counts)
    counts_candidate: Counts = field(default_factory=Counts)
    overlap: NDArray[np.float64] = field(default_factory=lambda: np.zeros(GROUPS))
    compared: NDArray[np.float64] = field(default_factory=lambda: np.zeros(GROUPS))
    dropped: int = 0  # searches that were not repeated because the candidate was too slow
    id: str = field(
        default_factory=lambda: uuid4().hex
    )  # another one after a restart, and in each replica

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
            measured = name != "clicks" or (
                self.mode == "canary" and first[0].sum() + second[0].sum() > 0
            )
            if not measured:
                found.append(Metric(name, None, None, None))
                continue
            champion, candidate = (
                estimate_ratio(*sums, alpha, planned) for sums in (first, second)
            )
            found.append(
                Metric(
                    name, champion, candidate, estimate_difference(first, second, alpha, planned)
                )
            )
        for name, share in QUANTILES.items():
            champion, candidate = (
                estimate_quantile(counts.latency, EDGES, share, alpha, planned) for counts in parts
            )
            # Both intervals hold at once with probability 1 - alpha.
            halves = (
                estimate_quantile(counts.latency, EDGES, share, alpha / 2, planned)
                for counts in parts
            )
            found.append(Metric(name, champion, candidate, _ratio(*halves)))
        if self.mode == "shadow":
            overlaps = estimate_ratio(self.overlap, self.compared, alpha, planned)
            found.append(Metric("overlap_at_10", None, None, overlaps))
        return found

    def __add__(self, other: "Report") -> "Report":
        """Return the sums of two replicas; raise ``ValueError`` if they compare other releases, or
        in another way."""
        if name := self.difference(other):
            raise ValueError(
                f"two replicas differ in {name}: {getattr(self, name)} and "
                f"{getattr(other, name)}; wait until both have loaded the same releases"
            )
        return replace(
            self,
            since=min(self.since, other.since),
            counts_champion=self.counts_champion + other.counts_champion,
            counts_candidate=self.counts_candidate + other.counts_candidate,
            overlap=self.overlap + other.overlap,
            compared=self.compared + other.compared,
            dropped=self.dropped + other.dropped,
        )

    def difference(self, other: "Report") -> str | None:
        """Return the name of a setting or release that two reports do not share; None if they can
        be added."""
        same = {name: getattr(self, name) == getattr(other, name) for name in ("mode", "share")}
        same |= {
            name: getattr(self, name).same_model(getattr(other, name))
            for name in ("champion", "candidate")
        }
        return next((name for name, equal in same.items() if not equal), None)

    def to_json(self) -> dict[str, Any]:
        """Return the sums, with the metrics at the level ``ALPHA``."""
        return vars(self) | {
            "champion": asdict(self.champion),
            "candidate": asdict(self.candidate),
            "metrics": plain(self.metrics()),
            "counts_champion": self.counts_champion.to_json(),
            "counts_candidate": self.counts_candidate.to_json(),
            "overlap": np.round(self.overlap, 6).tolist(),
            "compared": self.compared.tolist(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Report":
        """Read a report; raise ``ValueError`` for another text."""
        try:
            mode: Mode = content["mode"]
            if mode not in get_args(Mode):
                raise ValueError(f"mode is {mode!r}")
            parts = [
                Counts.from_json(content[f"counts_{arm}"]) for arm in ("champion", "candidate")
            ]
            champion, candidate = (
                ReleaseIdentity(**content[arm]) for arm in ("champion", "candidate")
            )
            overlap, compared = (
                np.asarray(content[name], np.float64) for name in ("overlap", "compared")
            )
            if overlap.shape != (GROUPS,) or compared.shape != (GROUPS,):
                raise ValueError("overlap or compared has another length")
            if not re.fullmatch("[0-9a-f]{32}", content["id"]):  # it names a file
                raise ValueError("id is not 32 hexadecimal digits")
            return cls(
                mode,
                float(content["share"]),
                champion,
                candidate,
                str(content["since"]),
                parts[0],
                parts[1],
                overlap,
                compared,
                int(content["dropped"]),
                content["id"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a report of bifocal serve: {error}") from error


def overlap_at_10(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the common results among the first ten of two answers, divided by the larger number of
    them; in [0, 1]."""
    one, other = set(first[:OVERLAP_DEPTH]), set(second[:OVERLAP_DEPTH])
    larger = max(len(one), len(other))
    return len(one & other) / larger if larger else 1.0


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
    if (
        first is None
        or second is None
        or first.interval is None
        or second.interval is None
        or not first.value
    ):
        return None
    (low, high), (other_low, other_high) = first.interval, second.interval
    most = other_high / low if low else math.inf
    return Estimate(second.value / first.value, (other_low / high, most))
