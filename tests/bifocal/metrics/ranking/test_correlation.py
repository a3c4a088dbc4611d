"""Spearman's correlation against scipy."""

import math

import pytest
import torch
from scipy.stats import spearmanr

from bifocal.metrics import spearman


def random_numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("decimals", [8, 0])
def test_spearman_equals_scipy_with_and_without_ties(decimals):
    scores, targets = random_numbers(2, 60).round(decimals=decimals)
    targets = targets + scores
    assert spearman(scores, targets) == pytest.approx(spearmanr(scores, targets).statistic)


def test_spearman_of_constant_is_nan_and_rejects_wrong_shapes():
    assert math.isnan(spearman(torch.zeros(3), torch.rand(3)))
    with pytest.raises(ValueError, match="two vectors of equal length"):
        spearman(torch.rand(3), torch.rand(4))
