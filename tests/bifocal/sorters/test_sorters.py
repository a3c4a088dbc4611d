"""Sorters against loops over their equations, and gradients against finite differences."""

from math import exp

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck

from bifocal.sorters import (
    CNNSorter,
    ExactRankSorter,
    PairwiseSorter,
    PositionwiseLSTMSorter,
    exact_ranks,
)
from bifocal.sorters.ranks import sort_rows
from bifocal.sorters.synthetic import synthetic_scores
from tests.margins import beyond_chance


def random_scores(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def eq_5_3(s: list[float], steepness: float) -> list[float]:
    return [
        sum(1 / (1 + exp(-steepness * (b - a))) for j, b in enumerate(s) if j != i)
        for i, a in enumerate(s)
    ]


def laplace_ranks(s: list[float], bandwidth: float) -> list[float]:
    def distribution(x: float) -> float:
        return exp(x) / 2 if x < 0 else 1 - exp(-x) / 2

    return [
        sum(distribution((b - a) / bandwidth) for j, b in enumerate(s) if j != i)
        for i, a in enumerate(s)
    ]


@pytest.mark.parametrize("n", [1, 2, 9])
def test_pairwise_sorter_is_its_equation(n):
    for row in random_scores(4, n):
        assert PairwiseSorter(steepness=3.0)(row).tolist() == pytest.approx(
            eq_5_3(row.tolist(), 3.0), abs=1e-9
        )


def test_adaptive_pairwise_sorter_is_invariant_to_scale_and_shift():
    sorter, scores = PairwiseSorter(adaptive=True), random_scores(3, 8)
    torch.testing.assert_close(sorter(1e-3 * scores + 7), sorter(scores))


def test_pairwise_sorter_has_the_gradient_of_its_ranks():
    assert gradcheck(PairwiseSorter(), random_scores(2, 6).requires_grad_())


@pytest.mark.parametrize(
    "sorter", [PositionwiseLSTMSorter(length=5, hidden=4), CNNSorter(length=5, blocks=2)]
)
def test_trained_sorter_has_the_gradient_of_its_ranks(sorter):
    assert gradcheck(sorter.double().eval(), random_scores(2, 5).requires_grad_())


def smooth_gradient(
    s: list[float], g: list[float], bandwidth: float, max_gap: float
) -> list[float]:
    """Formula of the docstring of ExactRankSorter, with loops."""
    n, order = len(s), sorted(range(len(s)), key=lambda i: s[i])
    mean = sum(s) / n
    b = bandwidth * ((sum((a - mean) ** 2 for a in s) / n) ** 0.5 or 1)

    def distance(i: int, j: int) -> float:
        first, last = sorted((order.index(i), order.index(j)))
        return sum(min((s[order[k + 1]] - s[order[k]]) / b, max_gap) for k in range(first, last))

    return [sum((g[j] - g[i]) * exp(-distance(i, j)) for j in range(n)) / (2 * b) for i in range(n)]


def gradient(scores: Tensor, weights: Tensor, sorter: nn.Module) -> Tensor:
    leaf = scores.clone().requires_grad_()
    (result,) = torch.autograd.grad((sorter(leaf) * weights).sum(), leaf)
    return result


@pytest.mark.parametrize("n", [1, 2, 17])
@pytest.mark.parametrize("max_gap", [0.5, 2.0, 50.0])
def test_exact_rank_sorter_has_the_gradient_of_its_formula(n, max_gap):
    scores, weights = random_scores(4, n), random_scores(4, n, seed=1)
    scores[0] = 0.25  # all equal
    scores[1, : n // 2] = scores[1, 0]
    result = gradient(scores, weights, ExactRankSorter(0.3, max_gap))
    for s, g, row in zip(scores.tolist(), weights.tolist(), result.tolist(), strict=True):
        assert row == pytest.approx(smooth_gradient(s, g, 0.3, max_gap), abs=1e-9)


def test_soft_ranks_without_capped_gaps_are_sums_of_laplace_distributions():
    scores, weights = random_scores(1, 30), random_scores(1, 30, seed=1)
    bandwidth, soft = 0.3 * scores.std(correction=0).item(), ExactRankSorter(0.3, 1e9, exact=False)
    assert soft(scores)[0].tolist() == pytest.approx(
        laplace_ranks(scores[0].tolist(), bandwidth), abs=1e-9
    )
    torch.testing.assert_close(
        gradient(scores, weights, soft), gradient(scores, weights, ExactRankSorter(0.3, 1e9))
    )
    torch.testing.assert_close(soft(1e-3 * scores + 7), soft(scores))


HARD = {
    "tiny": lambda s: 1e-6 * s,
    "huge": lambda s: 1e6 * s,
    "shifted": lambda s: s + 50,
    "heavy-tailed": lambda s: torch.tan(1.5 * torch.tanh(s)) ** 5,
    "clustered": lambda s: s.sign() * 100 + 0.001 * s,
    "ties": lambda s: s.round(),
    "constant": lambda s: 0 * s,
    "outlier": lambda s: torch.cat([s[:, 1:], 1e7 + 0 * s[:, :1]], dim=1),
}


@pytest.mark.parametrize("n", [2, 10, 1000])
@pytest.mark.parametrize("case", sorted(HARD))
def test_exact_rank_sorter_is_exact_with_a_nonzero_gradient_on_hard_scores(case, n):
    scores = HARD[case](random_scores(3, n).float())
    ranks = ExactRankSorter()(scores)
    higher = (scores[:, None, :] > scores[:, :, None]).sum(dim=2)
    equal = (scores[:, None, :] == scores[:, :, None]).sum(dim=2)
    assert torch.equal(ranks, higher + (equal - 1) / 2)
    result = gradient(scores, random_scores(3, n, seed=1).float(), ExactRankSorter())
    assert result.isfinite().all()
    assert (result != 0).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 40),
    scale=st.floats(1e-6, 1e6),
    shift=st.floats(-9, 9),
)
def test_exact_rank_gradient_is_invariant_to_shift_and_inverse_to_scale(seed, n, scale, shift):
    scores, weights = random_scores(2, n, seed=seed), random_scores(2, n, seed=seed + 1)
    expected = gradient(scores, weights, ExactRankSorter())
    result = gradient(scale * (scores + shift), weights, ExactRankSorter())
    torch.testing.assert_close(scale * result, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(
        expected.sum(dim=1), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-9
    )


def test_exact_rank_gradient_decreases_the_loss():
    scores, weights = random_scores(50, 20), random_scores(50, 20, seed=1)
    result = gradient(scores, weights, ExactRankSorter())
    # A small step against the gradient moves the soft ranks r so that the weighted sum w · r falls.
    soft = PairwiseSorter(steepness=2.0)
    before, after = ((soft(s) * weights).sum(dim=1) for s in (scores, scores - 1e-4 * result))
    assert (after < before).double().mean() > beyond_chance(50, 0.5)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 30), decimals=st.integers(0, 3))
def test_sort_rows_sorts_like_torch(seed, n, decimals):
    scores = random_scores(3, n, seed=seed).float().round(decimals=decimals)  # ties, and both zeros
    ordered, order = sort_rows(scores)
    torch.testing.assert_close(ordered, scores.sort(dim=-1).values, rtol=0, atol=0)
    assert torch.equal(scores.gather(-1, order), ordered)
    assert torch.equal(order.sort(dim=-1).values, torch.arange(n).expand(3, n))


def test_exact_rank_sorter_returns_exact_ranks_of_synthetic_scores():
    scores = synthetic_scores(200, 50, torch.Generator().manual_seed(0))
    assert torch.equal(ExactRankSorter()(scores), exact_ranks(scores))
