"""Average precision and Spearman's correlation against loops."""

import math
import warnings
from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from bifocal.metrics import average_precision, mean_average_precision, spearman

VALUES = st.lists(
    st.tuples(st.sampled_from([-2.0, -0.1, 0.0, 0.7, 3.0]), st.booleans()), min_size=1, max_size=6
)


def random_numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(VALUES)
def test_average_precision_is_mean_over_all_orders_of_ties(rows):
    scores, matches = (list(column) for column in zip(*rows, strict=True))
    if not any(matches):
        assert math.isnan(average_precision(torch.tensor(scores), torch.tensor(matches)))
        return
    totals = []
    for order in permutations(range(len(rows))):
        if any(scores[a] < scores[b] for a, b in pairwise(order)):
            continue
        hits, total = 0, 0.0
        for rank, i in enumerate(order):
            if matches[i]:
                hits += 1
                total += hits / (rank + 1)
        totals.append(total / hits)
    expected = sum(totals) / len(totals)
    assert average_precision(torch.tensor(scores), torch.tensor(matches)) == pytest.approx(expected)


def test_mean_average_precision_equals_scikit_learn():
    scores, matches = random_numbers(5, 80), random_numbers(5, 80, seed=1) > 0.9
    expected = [
        average_precision_score(truth, row) for row, truth in zip(scores, matches, strict=True)
    ]
    assert mean_average_precision(scores, matches) == pytest.approx(sum(expected) / 5)


def test_mean_average_precision_ignores_unknown_elements_and_classes_without_match():
    scores = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    matches = torch.tensor([[False, True, False], [False, False, False]])
    assert mean_average_precision(scores, matches) == 0.5
    known = torch.tensor([[False, True, True], [True, True, True]])
    assert mean_average_precision(scores, matches, known) == 1.0
    with pytest.raises(ValueError, match="NaN"):
        mean_average_precision(scores * float("nan"), matches)


def mean_ranks(values: list[float]) -> list[float]:
    return [sum((b > a) + (b == a) / 2 for b in values) - 0.5 for a in values]


def pearson(x: list[float], y: list[float]) -> float:
    a, b = ([value - sum(values) / len(values) for value in values] for values in (x, y))
    products = sum(p * q for p, q in zip(a, b, strict=True))
    return products / math.sqrt(sum(p * p for p in a) * sum(q * q for q in b))


@pytest.mark.parametrize("decimals", [8, 0])
def test_spearman_is_the_correlation_of_mean_ranks(decimals: int) -> None:
    scores, targets = random_numbers(2, 60).round(decimals=decimals)
    targets = targets + scores
    expected = pearson(mean_ranks(scores.tolist()), mean_ranks(targets.tolist()))
    assert spearman(scores, targets) == pytest.approx(expected, abs=1e-12)


def test_spearman_without_ties_is_eq_5_4() -> None:
    scores, targets = random_numbers(2, 30)
    ranks = zip(mean_ranks(scores.tolist()), mean_ranks(targets.tolist()), strict=True)
    expected = 1 - 6 * sum((a - b) ** 2 for a, b in ranks) / (30 * (30**2 - 1))
    assert spearman(scores, targets) == pytest.approx(expected, abs=1e-12)


def test_spearman_of_constant_is_nan_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(spearman(torch.zeros(3), torch.rand(3)))
        assert math.isnan(spearman(torch.rand(3), torch.zeros(3)))


def test_spearman_rejects_wrong_shapes_and_values() -> None:
    with pytest.raises(ValueError, match="two vectors of equal length"):
        spearman(torch.rand(3), torch.rand(4))
    with pytest.raises(ValueError, match="1 of the 3 scores are NaN or infinite"):
        spearman(torch.rand(3), torch.tensor([0.0, math.nan, 1.0]))
