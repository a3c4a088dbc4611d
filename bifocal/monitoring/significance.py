"""Tests of shares and of paired values, and a level that several tests share. Needs no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom

Array = NDArray[Any]


@dataclass(frozen=True)
class Count:
    """Number of entries that have a property, ``hits`` of ``total``; ``design`` is the effect of their groups."""

    hits: int
    total: int
    design: float = 1.0

    @property
    def share(self) -> float:
        """Share in [0, 1]; 0 without entries."""
        return self.hits / self.total if self.total else 0.0


def share_rises(reference: Count, sample: Count) -> float:
    """Return the p-value of Fisher's exact test: has the property a larger probability in the sample?

    Fisher, "The design of experiments", 1935, section 21: given the hits of both together, the hits of the sample are
    hypergeometric if the probabilities are equal. The reference is a sample too, so its share has an error of its own.
    Counts of dependent entries are divided by the larger design effect first (Rao and Scott, Biometrics 1992).
    """
    design = max(reference.design, sample.design)
    hits, others = round(sample.hits / design), round(reference.hits / design)
    total, rest = math.ceil(sample.total / design), math.ceil(reference.total / design)
    return float(hypergeom.sf(hits - 1, total + rest, hits + others, total))


def losses_prevail(before: Array, after: Array) -> float:
    """Return the p-value of the exact test of McNemar: are there more losses than gains among paired outcomes?

    McNemar, "Note on the sampling error of the difference between correlated proportions", Psychometrika 1947, with the
    binomial distribution: pairs that did not change say nothing. Outcomes ``before`` and ``after`` belong to the same
    entries (n,).
    """
    lost, gained = int((before & ~after).sum()), int((~before & after).sum())
    return float(binom.sf(lost - 1, lost + gained, 0.5)) if lost else 1.0


def mean_rises(before: Array, after: Array, permutations: int = 999, seed: int = 0) -> float:
    """Return the p-value of the sign-flip test: is the mean of paired values larger after than before?

    Pitman, "Significance tests which may be applied to samples from any populations", 1937: without a change, the
    differences are symmetric, so that all their signs are equally probable. Values ``before`` and ``after`` belong to
    the same entries (n,). The smallest p-value is 1 / (permutations + 1).
    """
    differences = np.asarray(after, np.float64) - np.asarray(before, np.float64)
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(permutations, len(differences)))
    exceeded = int((signs @ differences >= differences.sum() - 1e-12).sum())
    return (exceeded + 1) / (permutations + 1)


def holm_levels(p_values: Mapping[str, float], level: float) -> dict[str, float]:
    """Return the level of each test, such that all together have a false alarm with probability ``level`` at most.

    Holm, "A simple sequentially rejective multiple test procedure", 1979: the smallest p-value is compared with the
    level divided by the number of tests, the next one with the level divided by one less, until one is larger. It has
    the level at which the procedure stopped, and so have the tests after it.
    """
    levels: dict[str, float] = {}
    stopped = None
    for rank, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda entry: entry[1])):
        levels[name] = level / (len(p_values) - rank) if stopped is None else stopped
        if stopped is None and p_value > levels[name]:
            stopped = levels[name]
    return levels
