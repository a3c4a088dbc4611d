"""Comparison of a week with the training reference: eight tests that share one rate of false alarms."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bifocal.monitoring.discrepancy import discrepancy_test
from bifocal.monitoring.observations import Observations
from bifocal.monitoring.queries import expected_languages, other_languages
from bifocal.monitoring.reference import Keep
from bifocal.monitoring.significance import Count, holm_levels, losses_prevail, mean_rises, share_rises
from bifocal.monitoring.units import Labels, dependent_units
from bifocal.registry import suggest

TESTS = {
    "images": "squared maximum mean discrepancy of the image vectors",
    "queries": "squared maximum mean discrepancy of the query vectors",
    "unknown_words": "queries with a word that the model has not learned",
    "languages": "queries in a language that less than 5 % of the reference have",
    "nothing_found": "queries without a relevant result",
    "calibration": "calibration error of the probes",
    "lost_probes": "probes whose image is not among the ten best results",
    "unusable_images": "new images that were rejected, or are very small",
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
        permutations: of the tests by permutation; 1 / permutations must be far below the level of a test.
        least: images and queries that a week needs; with fewer, their tests are left out.
        least_change: change by name of a test that is reported; a smaller one is not, however certain it is.
        sample: sizes of the samples.
        keep_queries: whether a reference has the sentences of its queries, or their hashes. Without sentences, the logs
            of its days are read again after a promotion; with hashes, the same queries are taken from them.
        keep_days: age of a reference from which on it has neither sentences nor hashes; None for no limit.

    Raises:
        ValueError: the permutations are too few for the rate, or there is no test with such a name.
    """

    false_alarm_rate: float = 0.01
    permutations: int = 1999
    least: int = 50
    least_change: Mapping[str, float] = field(default_factory=dict)
    sample: SampleSizes = field(default_factory=SampleSizes)
    keep_queries: Keep = False
    keep_days: int | None = None

    def __post_init__(self) -> None:
        """Check the names, and that the smallest p-value is below the smallest level."""
        for name in self.least_change.keys() - TESTS.keys():
            raise ValueError(f"least_change.{name}: unknown test; {suggest(name, TESTS)}")
        if self.permutations + 1 < 2 * len(TESTS) / self.false_alarm_rate:
            raise ValueError(
                f"permutations is {self.permutations}: a rate of {self.false_alarm_rate} for {len(TESTS)} tests needs "
                f"{2 * len(TESTS) / self.false_alarm_rate:.0f}"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Thresholds":
        """Return the thresholds with these values by name; ``sample`` is a mapping."""
        return cls(**{**values, "sample": SampleSizes(**values["sample"])})


@dataclass(frozen=True)
class Finding:
    """Result of one test.

    Attributes:
        name: key of ``TESTS``.
        reference: value of the reference.
        value: value of the week.
        p_value: probability of such a rise without a change of the distribution.
        level: p-value up to which the rise is reported.
        least_change: rise from which on it is reported.
    """

    name: str
    reference: float
    value: float
    p_value: float
    level: float = 0.0
    least_change: float = 0.0

    @property
    def crossed(self) -> bool:
        """Whether the rise is reported."""
        return self.p_value <= self.level and self.value - self.reference >= self.least_change


def value_text(name: str, value: float) -> str:
    """Return a value of a test as text."""
    return f"{value:.4f}" if name in DISCREPANCIES else f"{100 * value:.1f} %"


def compare(reference: Observations, week: Observations, thresholds: Thresholds, seed: int = 0) -> list[Finding]:
    """Test each of ``TESTS`` for which reference and week have values, in their order.

    The levels follow Holm's procedure, so a week without any change has a finding that crosses its threshold with
    probability ``thresholds.false_alarm_rate`` at most.
    """
    found = [
        *_discrepancies(reference, week, thresholds, seed),
        *_shares(reference, week, thresholds.least),
        *_probes(reference, week, thresholds.permutations, seed),
    ]
    levels = holm_levels({finding.name: finding.p_value for finding in found}, thresholds.false_alarm_rate)
    least = thresholds.least_change
    found = [
        replace(finding, level=levels[finding.name], least_change=least.get(finding.name, 0.0)) for finding in found
    ]
    return sorted(found, key=lambda finding: list(TESTS).index(finding.name))


def _discrepancies(reference: Observations, week: Observations, thresholds: Thresholds, seed: int) -> list[Finding]:
    pairs = {"images": (reference.images, week.images), "queries": (reference.queries, week.queries)}
    found = []
    for name, (before, after) in pairs.items():
        if min(len(before), len(after)) >= thresholds.least:
            units = image_units(reference, week) if name == "images" else None
            if units is not None and min(len(np.unique(labels)) for labels in units) < 2:
                continue
            result = discrepancy_test(before, after, thresholds.permutations, seed, units)
            found.append(Finding(name, 0.0, result.squared, result.p_value))
    return found


def image_units(reference: Observations, week: Observations) -> tuple[Labels, Labels]:
    """Return the numbers of the units, such as albums, of the sampled images of both."""
    before, after = dependent_units((reference.images, week.images), (reference.groups, week.groups))
    return before, after


def _shares(reference: Observations, week: Observations, least: int) -> list[Finding]:
    expected = expected_languages(reference.languages)
    pairs: dict[str, tuple[Count | None, Count | None]] = {
        "unknown_words": (reference.unknown_words, week.unknown_words),
        "languages": (
            other_languages(reference.languages, len(reference.queries), expected),
            other_languages(week.languages, len(week.queries), expected),
        ),
        "nothing_found": (reference.nothing_found, week.nothing_found),
        "unusable_images": (reference.unusable, week.unusable),
    }
    return [
        Finding(name, before.share, after.share, share_rises(before, after))
        for name, (before, after) in pairs.items()
        if before is not None and after is not None and min(before.total, after.total) >= least
    ]


def _probes(reference: Observations, week: Observations, permutations: int, seed: int) -> list[Finding]:
    """Return the tests of the probes that reference and week have in common."""
    if reference.probes is None or week.probes is None:
        return []
    keys = sorted(set(reference.probes.keys) & set(week.probes.keys))
    if not keys:
        return []
    before, after = reference.probes.of(keys), week.probes.of(keys)
    p_value = losses_prevail(before.found, after.found)
    found = [Finding("lost_probes", 1 - before.recall, 1 - after.recall, p_value)]
    if before.probabilities is not None and after.probabilities is not None:
        p_value = mean_rises(before.losses, after.losses, permutations, seed)
        found.append(Finding("calibration", before.calibration_error, after.calibration_error, p_value))
    return found
