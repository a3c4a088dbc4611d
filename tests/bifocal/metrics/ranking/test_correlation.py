"""Spearman's correlation against loops over ranks."""

import math
import warnings

import pytest
import torch

from bifocal.metrics import spearman


def random_numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
