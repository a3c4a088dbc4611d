"""Sums over the searches that a release answered, by groups of clients; replicas of a service can add them up."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

GROUPS = 100
"""Groups of clients, by a hash of the client."""
EDGES = 1e-4 * 1.05 ** np.arange(285)
"""Edges of the histogram of latencies, in seconds: from 0.1 ms to 104 s in steps of 5 %."""


@dataclass(frozen=True)
class Place:
    """Place of a client among all clients."""

    position: float  # in [0, 1), uniform and independent of the group
    group: int  # of clients, for confidence intervals

    @classmethod
    def of(cls, client: str, salt: str) -> "Place":
        """Return the place of a client; another salt gives other places."""
        digest = hashlib.sha256(f"{salt}\0{client}".encode("utf-8", "replace")).digest()
        return cls(int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16]) % GROUPS)

    def is_within(self, share: float) -> bool:
        """Return whether the client belongs to a share of all clients. A larger share contains a smaller one."""
        return self.position < share


def _zeros() -> NDArray[np.float64]:
    return np.zeros(GROUPS)


@dataclass
class Counts:
    """Sums over first-page searches of one release; each array but ``latency`` has a number per group of clients."""

    searches: NDArray[np.float64] = field(default_factory=_zeros)  # with failed ones
    errors: NDArray[np.float64] = field(default_factory=_zeros)
    nothing: NDArray[np.float64] = field(default_factory=_zeros)  # no result, or none above the calibrated threshold
    calibrated: NDArray[np.float64] = field(default_factory=_zeros)  # searches of a sentence by a calibrated index
    relevance: NDArray[np.float64] = field(default_factory=_zeros)  # sum of the first results' probabilities
    clicked: NDArray[np.float64] = field(default_factory=_zeros)  # answers with a click
    latency: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(EDGES) + 1))  # histogram over EDGES

    def add_answer(self, group: int, found: bool, relevance: float | None, seconds: float) -> None:
        """Count an answered search; `relevance` is 0 without a result, and None if the index is not calibrated."""
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
        return Counts(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def to_json(self) -> dict[str, list[float]]:
        """Return the sums as lists."""
        return {part.name: np.round(getattr(self, part.name), 6).tolist() for part in fields(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Counts":
        """Read the sums; raise ``ValueError`` if a list is missing or has another length."""
        empty = cls()
        found = {part.name: np.asarray(content.get(part.name, []), dtype=np.float64) for part in fields(cls)}
        for name, values in found.items():
            if values.shape != getattr(empty, name).shape:
                raise ValueError(f"{name} has the shape {values.shape}, expected {getattr(empty, name).shape}")
        return cls(**found)
