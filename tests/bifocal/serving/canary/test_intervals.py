"""Confidence intervals of a comparison: against simulations, and against formulas for independent
searches."""

import math

import numpy as np
import pytest

from bifocal.serving.canary.intervals import (
    boundary,
    estimate_difference,
    estimate_quantile,
    estimate_ratio,
)
from bifocal.serving.canary.report import EDGES, GROUPS

ALPHA, PLANNED, LOOKS = 0.05, 1000.0, 40


def test_the_boundary_holds_at_every_look_and_that_of_one_look_does_not() -> None:
    generator, runs, step = np.random.default_rng(0), 2000, 50
    means = generator.normal(size=(runs, LOOKS * step)).cumsum(axis=1)[:, step - 1 :: step]
    searches = step * np.arange(1, LOOKS + 1)
    errors = np.abs(means) / np.sqrt(searches)  # in standard errors
    limits = np.array([boundary(count, ALPHA, PLANNED) for count in searches])
    assert (errors > limits).any(axis=1).mean() <= ALPHA
    assert (errors > 1.96).any(axis=1).mean() > 4 * ALPHA


def test_the_boundary_is_the_published_one_and_is_narrowest_at_the_planned_number() -> None:
    def radius(
        count: float,
    ) -> float:  # of the mean of unit variance, with t and rho of theorem 2.2
        rho2 = (-2 * math.log(ALPHA) + math.log(-2 * math.log(ALPHA) + 1)) / PLANNED
        return math.sqrt(
            2
            * (count * rho2 + 1)
            / (count**2 * rho2)
            * math.log(math.sqrt(count * rho2 + 1) / ALPHA)
        )

    for count in (10, 333, 1000, 50_000):
        assert boundary(count, ALPHA, PLANNED) / math.sqrt(count) == pytest.approx(radius(count))
    limits = [boundary(count, ALPHA, PLANNED) for count in (250, 1000, 4000)]
    assert limits[1] == min(limits)


def by_group(clients: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.bincount(clients, values, GROUPS), np.bincount(clients, minlength=GROUPS).astype(
        float
    )


def half(interval: tuple[float, float] | None) -> float:
    assert interval is not None
    return (interval[1] - interval[0]) / 2


def test_errors_of_independent_searches_and_of_clients_that_search_often() -> None:
    generator = np.random.default_rng(1)
    groups, values = generator.integers(0, GROUPS, 20_000), generator.random(20_000) < 0.3
    found = estimate_ratio(*by_group(groups, values), ALPHA, PLANNED)
    assert found is not None
    assert found.value == values.mean()
    limit = boundary(20_000, ALPHA, PLANNED)
    assert half(found.interval) / limit == pytest.approx(math.sqrt(0.21 / 20_000), rel=0.25)
    # Each client repeats one search 100 times: it is worth one search.
    often = estimate_ratio(
        *by_group(np.repeat(groups[:200], 100), np.repeat(values[:200], 100)), ALPHA, PLANNED
    )
    assert often is not None
    assert half(often.interval) > 5 * half(found.interval)


def test_a_difference_on_the_same_searches_is_sharper_than_on_others() -> None:
    generator = np.random.default_rng(2)
    groups, hard = generator.integers(0, GROUPS, 4000), generator.random(4000)
    first, second = (
        by_group(groups, hard + 0.05 * generator.normal(size=4000) + gain) for gain in (0.0, 0.02)
    )
    same = estimate_difference(first, second, ALPHA, PLANNED)
    other = estimate_difference(
        first, by_group(generator.integers(0, GROUPS, 4000), generator.random(4000)), ALPHA, PLANNED
    )
    assert same is not None
    assert other is not None
    assert same.value == pytest.approx(0.02, abs=0.005)
    assert same.interval is not None
    assert 0 < same.interval[0] < 0.02 < same.interval[1]
    assert half(same.interval) < half(other.interval) / 3


def test_too_few_clients_give_no_interval_and_no_event_gives_no_certainty() -> None:
    counts = np.zeros(GROUPS)
    assert estimate_ratio(counts, counts, ALPHA, PLANNED) is None
    counts[:19] = 50
    few = estimate_ratio(0 * counts, counts, ALPHA, PLANNED)
    assert few is not None
    assert (few.value, few.interval) == (0.0, None)
    counts[:] = 10
    none = estimate_ratio(0 * counts, counts, ALPHA, PLANNED)
    assert none is not None
    assert none.interval is not None
    assert none.interval[1] >= 3 / 1000  # the exact bound of 95 %


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_quantiles_of_a_histogram(share: float) -> None:
    generator, missed = np.random.default_rng(3), 0
    truth = math.exp(-4 + 0.7 * {0.5: 0.0, 0.99: 2.3263}[share])
    for _ in range(100):
        seconds = generator.lognormal(-4, 0.7, 2000)
        histogram = np.bincount(np.searchsorted(EDGES, seconds, "right"), minlength=len(EDGES) + 1)
        found = estimate_quantile(histogram, EDGES, share, ALPHA, PLANNED)
        assert found is not None
        assert found.interval is not None
        assert found.value == pytest.approx(np.quantile(seconds, share), rel=0.05)
        assert found.interval[0] < found.value < found.interval[1]
        missed += not found.interval[0] <= truth <= found.interval[1]
    assert missed <= 5
    few = estimate_quantile(
        np.bincount([50] * 20, minlength=len(EDGES) + 1), EDGES, 0.99, ALPHA, PLANNED
    )
    assert few is not None
    assert few.interval is not None
    assert few.interval[1] == math.inf
