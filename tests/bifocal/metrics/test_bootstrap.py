"""The paired bootstrap against loops over the resamples, and its coverage."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.metrics.bootstrap import BLOCK, bootstrap_difference


def loops(first: torch.Tensor, second: torch.Tensor, counts: torch.Tensor, resamples: int, seed: int) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    images, metrics = counts.shape
    differences = []
    for start in range(0, resamples, BLOCK):
        for row in torch.randint(images, (min(BLOCK, resamples - start), images), generator=generator).tolist():
            total = 0.0
            for metric in range(metrics):
                queries = sum(counts[image, metric].item() for image in row)
                for model, sign in ((first, 1.0), (second, -1.0)):
                    hits = sum(model[image, metric].item() for image in row)
                    total += sign * hits / queries if queries else 0.0
            differences.append(total)
    return differences


@given(seed=st.integers(0, 2**32 - 1), images=st.integers(1, 7), metrics=st.integers(1, 3))
def test_bootstrap_difference_equals_loop_over_resamples(seed: int, images: int, metrics: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 6, (images, metrics), generator=generator)
    counts[0] = 5
    first, second = ((torch.rand(counts.shape, generator=generator) * (counts + 1)).floor() for _ in range(2))
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
            (torch.rand(images, 1, generator=generator) < probability).double() for probability in (0.5 + truth, 0.5)
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
def test_bootstrap_difference_rejects_wrong_shapes(first: torch.Tensor, counts: torch.Tensor, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        bootstrap_difference(first, first, counts, 2, seed=0)
