"""The paired bootstrap against loops over the resamples, and its coverage."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.metrics.bootstrap import BLOCK, bootstrap_difference


def loops(first: torch.Tensor, second: torch.Tensor, counts: torch.Tensor, resamples: int, seed: int) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    images, figures = counts.shape
    found = []
    for start in range(0, resamples, BLOCK):
        for row in torch.randint(images, (min(BLOCK, resamples - start), images), generator=generator).tolist():
            total = 0.0
            for figure in range(figures):
                queries = sum(counts[image, figure].item() for image in row)
                for model, sign in ((first, 1.0), (second, -1.0)):
                    hits = sum(model[image, figure].item() for image in row)
                    total += sign * hits / queries if queries else 0.0
            found.append(total)
    return found


@given(seed=st.integers(0, 2**32 - 1), images=st.integers(1, 7), figures=st.integers(1, 3))
def test_it_is_the_loop_over_resamples(seed: int, images: int, figures: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 6, (images, figures), generator=generator)
    counts[0] = 5
    first, second = ((torch.rand(counts.shape, generator=generator) * (counts + 1)).floor() for _ in range(2))
    resamples = 9
    found = bootstrap_difference(first, second, counts, resamples, seed)
    assert found.tolist() == pytest.approx(loops(first, second, counts, resamples, seed))
    swapped = bootstrap_difference(second, first, counts, resamples, seed)
    torch.testing.assert_close(swapped, -found)


def test_several_blocks_are_one_sequence() -> None:
    hits = (torch.rand(5, 1, generator=torch.Generator().manual_seed(3)) < 0.5).double()
    ones = torch.ones(5, 1)
    found = bootstrap_difference(hits, 0 * ones, ones, BLOCK + 3, seed=1)
    assert found.tolist() == pytest.approx(loops(hits, 0 * ones, ones, BLOCK + 3, seed=1))


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    truth, images, level, trials = 0.1, 200, 0.9, 200
    held = 0
    for trial in range(trials):
        generator = torch.Generator().manual_seed(trial)
        first, second = (
            (torch.rand(images, 1, generator=generator) < chance).double() for chance in (0.5 + truth, 0.5)
        )
        found = bootstrap_difference(first, second, torch.ones(images, 1), 200, seed=trial)
        low, high = (found.quantile(q).item() for q in ((1 - level) / 2, (1 + level) / 2))
        held += low <= truth <= high
    # Three standard deviations of a binomial share.
    assert abs(held / trials - level) < 3 * (level * (1 - level) / trials) ** 0.5


@pytest.mark.parametrize(
    ("first", "counts", "expected"),
    [
        (torch.zeros(3, 2), torch.ones(3, 1), "one row per image"),
        (torch.zeros(3, 1), torch.zeros(3, 1), r"figures \[0\] have no query"),
    ],
)
def test_wrong_shapes_are_refused(first: torch.Tensor, counts: torch.Tensor, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        bootstrap_difference(first, first, counts, 2, seed=0)
