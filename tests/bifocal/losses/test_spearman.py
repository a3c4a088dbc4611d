"""SpearmanLoss against a loop over its equation."""

import pytest
import torch
from torch import Tensor

from bifocal.losses import SpearmanLoss
from bifocal.scores import Scores
from bifocal.sorters import ExactRankSorter


def random_scores(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(
        rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def rank(scores: list[float], i: int) -> int:
    return sum(other > scores[i] for other in scores)


def eq_5_4(a: list[float], b: list[float]) -> float:
    d = len(a)
    return 1 - 6 * sum((rank(a, i) - rank(b, i)) ** 2 for i in range(d)) / (d * (d**2 - 1))


@pytest.mark.parametrize("n", [2, 3, 20])
def test_spearman_is_one_minus_eq_5_4(n):
    scores, targets = random_scores(3, n), random_scores(3, n, seed=1)
    expected = [1 - eq_5_4(a, b) for a, b in zip(scores.tolist(), targets.tolist(), strict=True)]
    assert SpearmanLoss(ExactRankSorter())(Scores(scores), targets).item() == pytest.approx(
        sum(expected) / 3
    )


def test_spearman_default_sorter_is_soft():
    scores, targets = random_scores(3, 9), random_scores(3, 9, seed=1)
    torch.testing.assert_close(
        SpearmanLoss()(Scores(scores), targets),
        SpearmanLoss(ExactRankSorter(exact=False))(Scores(scores), targets),
    )
    # Soft ranks of scores that are many bandwidths apart are exact.
    apart = scores.argsort(dim=1).argsort(dim=1).double()
    loss = SpearmanLoss(ExactRankSorter(0.001, 100.0, exact=False))(Scores(apart), targets)
    torch.testing.assert_close(
        loss, SpearmanLoss(ExactRankSorter())(Scores(apart), targets), rtol=1e-3, atol=1e-3
    )


def test_spearman_rejects_groups_of_one():
    with pytest.raises(ValueError, match="two scores or more"):
        SpearmanLoss()(Scores(random_scores(3, 1)), random_scores(3, 1))
