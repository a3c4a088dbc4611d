"""Comparison of a week with the training reference: four tests that share one rate of false
alarms."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import fisher_exact

from bifocal.monitoring.albums import Labels, image_blocks
from bifocal.monitoring.discrepancy import discrepancy_test
from bifocal.monitoring.observations import Count, Observations
from bifocal.monitoring.reference import Keep
from bifocal.registry import suggest

TESTS = {
    "images": "squared maximum mean discrepancy of the image vectors",
    "queries": "squared maximum mean discrepancy of the query vectors",
    "unknown_words": "queries with a word that the model has not learned",
    "nothing_found": "queries without a relevant result",
}
"""What each test compares. All of them rise if something gets worse."""
DISCREPANCIES = ("images", "queries")
"""Tests whose values are not shares."""


@dataclass(frozen=True)
class SampleSizes:
    """Largest samples of images and queries, for the reference and for a week."""

    reference_images: int = 2000
    reference_queries: int = 2000
    images: int = 500
    queries: int = 1000


@dataclass(frozen=True)
class Thresholds:
    """When a difference from the reference is reported.

    Attributes:
        false_alarm_rate: probability that a week without a change is reported: all tests together.
        permutations: of the tests by permutation; 1 / permutations must be far below the level of a
            test.
        least: images and queries that a week needs; with fewer, their tests are left out.
        min_change: change by name of a test that is reported; a smaller one is not, however certain
            it is.
        sample: sizes of the samples.
        keep_queries: whether a reference has the sentences of its queries, or their hashes. Without
            sentences, the logs of its days are read again after a promotion; with hashes, the same
            queries are taken from them.
        keep_days: age of a reference from which on it has neither sentences nor hashes; None for no
            limit.

    Raises:
        ValueError: the permutations are too few for the rate, or there is no test with such a name.
    """

    false_alarm_rate: float = 0.01
    permutations: int = 1999
    least: int = 50
    min_change: Mapping[str, float] = field(default_factory=dict)
    sample: SampleSizes = field(default_factory=SampleSizes)
    keep_queries: Keep = False
    keep_days: int | None = None

    def __post_init__(self) -> None:
        """Check the names, and that the smallest p-value is below the smallest level."""
        for name in self.min_change.keys() - TESTS.keys():
            raise ValueError(f"min_change.{name}: unknown test; {suggest(name, TESTS)}")
        if self.permutations + 1 < 2 * len(TESTS) / self.false_alarm_rate:
            raise ValueError(
                f"permutations is {self.permutations}: a rate of {self.false_alarm_rate} for "
                f"{len(TESTS)} tests needs {2 * len(TESTS) / self.false_alarm_rate:.0f}"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Thresholds":
        """Return the thresholds with these values by name; ``sample`` is a mapping."""
        return cls(**{**values, "sample": SampleSizes(**values["sample"])})


@dataclass(frozen=True)
class DriftTest:
    """Result of one test.

    Attributes:
        name: key of ``TESTS``.
        reference: value of the reference.
        value: value of the week.
        p_value: probability of such a rise without a change of the distribution.
        level: p-value up to which the rise is reported.
        min_change: rise from which on it is reported.
    """

    name: str
    reference: float
    value: float
    p_value: float
    level: float = 0.0
    min_change: float = 0.0

    @property
    def crossed(self) -> bool:
        """Whether the rise is reported."""
        return self.p_value <= self.level and self.value - self.reference >= self.min_change


def value_text(name: str, value: float) -> str:
    """Return a value of a test as text."""
    return f"{value:.4f}" if name in DISCREPANCIES else f"{100 * value:.1f} %"


def compare(
    reference: Observations, week: Observations, thresholds: Thresholds, seed: int = 0
) -> list[DriftTest]:
    """Test each of ``TESTS`` for which reference and week have enough values, in their order.

    Each test has an equal part of the rate (Bonferroni), so a week without any change has a finding
    that crosses its threshold with probability ``thresholds.false_alarm_rate`` at most.
    """
    found = []
    pairs = {
        "images": (reference.images, week.images),
        "queries": (reference.queries, week.queries),
    }
    for name, (before, after) in pairs.items():
        if min(len(before), len(after)) < thresholds.least:
            continue
        blocks = week_blocks(reference, week) if name == "images" else None
        if blocks is None or min(len(np.unique(labels)) for labels in blocks) > 1:
            result = discrepancy_test(before, after, thresholds.permutations, seed, blocks)
            found.append(DriftTest(name, 0.0, result.squared, result.p_value))
    counts = {
        "unknown_words": (reference.unknown_words, week.unknown_words),
        "nothing_found": (reference.nothing_found, week.nothing_found),
    }
    for name, (previous, now) in counts.items():
        if (
            previous is not None
            and now is not None
            and min(previous.total, now.total) >= thresholds.least
        ):
            found.append(DriftTest(name, previous.share, now.share, share_rises(previous, now)))
    level, least = thresholds.false_alarm_rate / max(len(found), 1), thresholds.min_change
    return [
        replace(finding, level=level, min_change=least.get(finding.name, 0.0)) for finding in found
    ]


def week_blocks(reference: Observations, week: Observations) -> tuple[Labels, Labels]:
    """Return the numbers of the blocks, such as albums, of the sampled images of both."""
    before, after = image_blocks((reference.images, week.images), (reference.groups, week.groups))
    return before, after


def share_rises(reference: Count, sample: Count) -> float:
    """Return the p-value of Fisher's exact test: has the property a larger probability in the
    sample?

    Fisher, "The design of experiments", 1935, section 21: the reference is a sample too, so its
    share has an error.
    """
    table = [[count.hits, count.total - count.hits] for count in (sample, reference)]
    return float(fisher_exact(table, alternative="greater").pvalue)
