"""The paired bootstrap against loops over the resamples, and its coverage."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bifocal.metrics.bootstrap import (
    BLOCK,
    bootstrap_means,
    subset_lower_bound,
    subset_means,
    tail_and_subsets,
)
from bifocal.promotion.looks import look_level


def bootstrap_difference(
    first: Tensor, second: Tensor, counts: Tensor, resamples: int, seed: int
) -> Tensor:
    """Sum over the metrics; a resample without a query of a metric adds 0."""
    return (
        bootstrap_means(first.double() - second.double(), counts, resamples, seed)
        .nan_to_num(0.0)
        .sum(dim=1)
    )


def loops(
    first: torch.Tensor, second: torch.Tensor, counts: torch.Tensor, resamples: int, seed: int
) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    images, metrics = counts.shape
    differences = []
    for start in range(0, resamples, BLOCK):
        for row in torch.randint(
            images, (min(BLOCK, resamples - start), images), generator=generator
        ).tolist():
            total = 0.0
            for metric in range(metrics):
                queries = sum(counts[image, metric].item() for image in row)
                for model, sign in ((first, 1.0), (second, -1.0)):
                    hits = sum(model[image, metric].item() for image in row)
                    total += sign * hits / queries if queries else 0.0
            differences.append(total)
    return differences


@given(seed=st.integers(0, 2**32 - 1), images=st.integers(1, 7), metrics=st.integers(1, 3))
def test_bootstrap_difference_equals_loop_over_resamples(
    seed: int, images: int, metrics: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 6, (images, metrics), generator=generator)
    counts[0] = 5
    first, second = (
        (torch.rand(counts.shape, generator=generator) * (counts + 1)).floor() for _ in range(2)
    )
    resamples = 9
    differences = bootstrap_difference(first, second, counts, resamples, seed)
    assert differences.tolist() == pytest.approx(loops(first, second, counts, resamples, seed))
    swapped = bootstrap_difference(second, first, counts, resamples, seed)
    torch.testing.assert_close(swapped, -differences)


def test_bootstrap_difference_is_independent_of_block_size() -> None:
    hits = (torch.rand(5, 1, generator=torch.Generator().manual_seed(3)) < 0.5).double()
    ones = torch.ones(5, 1)
    differences = bootstrap_difference(hits, 0 * ones, ones, BLOCK + 3, seed=1)
    assert differences.tolist() == pytest.approx(loops(hits, 0 * ones, ones, BLOCK + 3, seed=1))


def test_interval_covers_true_difference_at_its_level() -> None:
    truth, images, level, trials = 0.1, 200, 0.9, 200
    covered = 0
    for trial in range(trials):
        generator = torch.Generator().manual_seed(trial)
        first, second = (
            (torch.rand(images, 1, generator=generator) < probability).double()
            for probability in (0.5 + truth, 0.5)
        )
        differences = bootstrap_difference(first, second, torch.ones(images, 1), 200, seed=trial)
        low, high = (differences.quantile(q).item() for q in ((1 - level) / 2, (1 + level) / 2))
        covered += low <= truth <= high
    # Three standard deviations of a binomial share.
    assert abs(covered / trials - level) < 3 * (level * (1 - level) / trials) ** 0.5


@pytest.mark.parametrize(
    ("first", "counts", "expected"),
    [
        (torch.zeros(3, 2), torch.ones(3, 1), "one row per image"),
        (torch.zeros(3, 1), torch.zeros(3, 1), r"metrics \[0\] have no query"),
    ],
)
def test_bootstrap_difference_rejects_wrong_shapes(
    first: torch.Tensor, counts: torch.Tensor, expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        bootstrap_difference(first, first, counts, 2, seed=0)


def test_bound_is_the_quantile_of_all_subset_means() -> None:
    values = [3.0, -1.0, 2.0, 5.0, -4.0, 1.0, 2.5, 0.5]
    means = sorted(
        sum(chosen) / len(chosen) if chosen else 0.0
        for size in range(len(values) + 1)
        for chosen in itertools.combinations(values, size)
    )
    for alpha in (0.05, 0.2, 0.5):
        exact = means[int(alpha * len(means))]
        found = subset_lower_bound(
            torch.tensor(values).unsqueeze(1), torch.ones(8, 1), alpha, seed=0
        )
        assert found == pytest.approx(exact, abs=0.15)


@pytest.mark.parametrize("changed", [4, 7])
def test_a_few_changed_images_have_the_level_of_the_sign_test(changed: int) -> None:
    """All of m changed images are in favor with probability 2^-m; the percentile bootstrap claims
    about e^-m."""
    gains = torch.zeros(200, 1)
    gains[:changed] = 100.0
    ones = torch.ones(200, 1)
    assert subset_lower_bound(gains, ones, alpha=1.3 * 2.0**-changed, seed=0) > 0
    assert subset_lower_bound(gains, ones, alpha=0.7 * 2.0**-changed, seed=0) <= 0
    claimed = float((bootstrap_means(gains, ones, 10_000, seed=0) <= 0).double().mean())
    assert claimed < 0.5 * 2.0**-changed


def test_metrics_are_added_and_images_may_lack_queries() -> None:
    gains = torch.tensor([[100.0, 0.0], [100.0, 200.0], [100.0, 200.0]])
    counts = torch.tensor([[1.0, 0.0], [1.0, 2.0], [1.0, 2.0]])
    assert subset_lower_bound(gains, counts, alpha=0.5, seed=0) == 200.0


def test_invalid_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="each needs one row per image and one column per metric"):
        subset_lower_bound(torch.zeros(3, 1), torch.zeros(2, 1), 0.05, seed=0)
    with pytest.raises(ValueError, match="alpha is 0, expected a probability"):
        subset_lower_bound(torch.zeros(3, 1), torch.ones(3, 1), 0.0, seed=0)


def weekly_gains(years: int, looks: int, images: int, gain: float) -> Tensor:
    """Return gains of candidates over a champion, (images, years * looks), in points of R@1.

    Images differ in difficulty, the models only by chance and by ``gain``. A year shares the hits
    of its champion.
    """
    generator = torch.Generator().manual_seed(1)
    difficulty = torch.rand(images, years, 1, generator=generator)
    champion = torch.rand(images, years, 1, generator=generator) < difficulty
    better = torch.rand(images, years, looks, generator=generator) < gain / 50
    candidates = (torch.rand(images, years, looks, generator=generator) < difficulty) | better
    return 100.0 * (candidates.double() - champion.double()).flatten(1)


def promoted(gains: Tensor, alpha: float) -> Tensor:
    """Return whether the bound of each column of ``gains`` is above 0."""
    tail, subsets = tail_and_subsets(alpha)
    parts = [
        subset_means(part, torch.ones_like(part), subsets, seed=1)
        for part in gains.split(500, dim=1)
    ]
    return torch.cat([part.kthvalue(tail, dim=0).values > 0 for part in parts])


def test_a_year_of_looks_keeps_the_rate_of_false_promotions() -> None:
    """52 weekly candidates that are no better than the champion, as in version 0.1 at 2.5 %
    each."""
    years, looks, images, rate = 30, 52, 80, 0.05
    gains = weekly_gains(years, looks, images, gain=0.0)
    spending = promoted(gains, look_level(rate, looks, [])).view(years, looks)
    assert float(spending.any(dim=1).double().mean()) <= rate
    previous = (
        bootstrap_means(gains, torch.ones_like(gains), 400, seed=1).quantile(0.025, dim=0) > 0
    )
    assert float(previous.view(years, looks).any(dim=1).double().mean()) > 3 * rate


def test_a_clear_gain_is_found_at_the_level_of_one_look() -> None:
    gains = weekly_gains(years=1, looks=200, images=500, gain=20.0)
    assert float(promoted(gains, look_level(0.05, 52, [])).double().mean()) > 0.9
