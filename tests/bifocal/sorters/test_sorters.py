"""Sorters against loops over their equations, and gradients against finite differences."""

from itertools import permutations
from math import exp

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck

from bifocal.sorters import (
    BifocalSorter,
    CNNSorter,
    LaplaceSorter,
    NeuralSorter,
    PairwiseSorter,
    PermutahedronSorter,
    PositionwiseLSTMSorter,
    SoftSorter,
    exact_ranks,
)
from bifocal.sorters.ranks import decayed_sums, sort_rows
from bifocal.sorters.synthetic import synthetic_scores


def random_scores(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def eq_5_3(s: list[float], steepness: float) -> list[float]:
    return [sum(1 / (1 + exp(-steepness * (b - a))) for j, b in enumerate(s) if j != i) for i, a in enumerate(s)]


def laplace_ranks(s: list[float], bandwidth: float) -> list[float]:
    def distribution(x: float) -> float:
        return exp(x) / 2 if x < 0 else 1 - exp(-x) / 2

    return [sum(distribution((b - a) / bandwidth) for j, b in enumerate(s) if j != i) for i, a in enumerate(s)]


def softmax(x: list[float]) -> list[float]:
    powers = [exp(value - max(x)) for value in x]
    return [power / sum(powers) for power in powers]


def neural_sort_ranks(s: list[float], temperature: float) -> list[float]:
    n = len(s)
    spread = [sum(abs(a - b) for b in s) for a in s]
    rows = [softmax([((n + 1 - 2 * i) * s[j] - spread[j]) / temperature for j in range(n)]) for i in range(1, n + 1)]
    return [sum(i * rows[i][j] for i in range(n)) for j in range(n)]


def soft_sort_ranks(s: list[float], temperature: float) -> list[float]:
    n, descending = len(s), sorted(s, reverse=True)
    rows = [softmax([-abs(descending[i] - s[j]) / temperature for j in range(n)]) for i in range(n)]
    return [sum(i * rows[i][j] for i in range(n)) for j in range(n)]


@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize(
    ("sorter", "equation"),
    [
        (PairwiseSorter(steepness=3.0), lambda s: eq_5_3(s, 3.0)),
        (LaplaceSorter(bandwidth=0.4), lambda s: laplace_ranks(s, 0.4)),
        (NeuralSorter(temperature=0.7), lambda s: neural_sort_ranks(s, 0.7)),
        (SoftSorter(temperature=0.3), lambda s: soft_sort_ranks(s, 0.3)),
    ],
)
def test_soft_sorter_is_its_equation(sorter: nn.Module, equation, n):
    for row in random_scores(4, n):
        assert sorter(row).tolist() == pytest.approx(equation(row.tolist()), abs=1e-9)


def test_adaptive_pairwise_sorter_is_invariant_to_scale_and_shift():
    sorter, scores = PairwiseSorter(adaptive=True), random_scores(3, 8)
    torch.testing.assert_close(sorter(1e-3 * scores + 7), sorter(scores))


@pytest.mark.parametrize("strength", [0.1, 1.0, 10.0])
def test_permutahedron_sorter_projects_onto_the_permutahedron(strength):
    sorter = PermutahedronSorter(strength)
    vertices = torch.tensor(list(permutations(range(4))), dtype=torch.float64)
    for row in random_scores(5, 4):
        ranks, target = sorter(row), -row / strength
        assert ranks.sum().item() == pytest.approx(6)
        # Optimality of a projection: no vertex lies on the target's side of the projected point.
        assert ((vertices - ranks) @ (target - ranks) <= 1e-9).all()


@pytest.mark.parametrize(
    "sorter",
    [PairwiseSorter(), LaplaceSorter(0.4), PermutahedronSorter(0.3), NeuralSorter(), SoftSorter()],
    ids=lambda sorter: type(sorter).__name__,
)
def test_soft_sorter_has_the_gradient_of_its_ranks(sorter):
    assert gradcheck(sorter, random_scores(2, 6).requires_grad_())


@pytest.mark.parametrize("sorter", [PositionwiseLSTMSorter(length=5, hidden=4), CNNSorter(length=5, blocks=2)])
def test_trained_sorter_has_the_gradient_of_its_ranks(sorter):
    assert gradcheck(sorter.double().eval(), random_scores(2, 5).requires_grad_())


def smooth_gradient(s: list[float], g: list[float], bandwidth: float, max_gap: float) -> list[float]:
    """Formula of the docstring of BifocalSorter, with loops."""
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
def test_bifocal_sorter_has_the_gradient_of_its_formula(n, max_gap):
    scores, weights = random_scores(4, n), random_scores(4, n, seed=1)
    scores[0] = 0.25  # all equal
    scores[1, : n // 2] = scores[1, 0]
    result = gradient(scores, weights, BifocalSorter(0.3, max_gap))
    for s, g, row in zip(scores.tolist(), weights.tolist(), result.tolist(), strict=True):
        assert row == pytest.approx(smooth_gradient(s, g, 0.3, max_gap), abs=1e-9)


def test_bifocal_sorter_without_capped_gaps_has_the_gradient_of_the_laplace_sorter():
    scores, weights = random_scores(1, 30), random_scores(1, 30, seed=1)
    laplace = LaplaceSorter(0.3 * scores.std(correction=0).item())
    torch.testing.assert_close(
        gradient(scores, weights, BifocalSorter(0.3, max_gap=1e9)), gradient(scores, weights, laplace)
    )


def test_soft_ranks_of_the_bifocal_sorter_are_those_of_the_laplace_sorter():
    scores, weights = random_scores(1, 30), random_scores(1, 30, seed=1)
    soft, laplace = BifocalSorter(0.3, 1e9, exact=False), LaplaceSorter(0.3 * scores.std(correction=0).item())
    torch.testing.assert_close(soft(scores), laplace(scores))
    torch.testing.assert_close(gradient(scores, weights, soft), gradient(scores, weights, laplace))
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
def test_bifocal_sorter_is_exact_with_a_nonzero_gradient_on_hard_scores(case, n):
    scores = HARD[case](random_scores(3, n).float())
    ranks = BifocalSorter()(scores)
    higher = (scores[:, None, :] > scores[:, :, None]).sum(dim=2)
    equal = (scores[:, None, :] == scores[:, :, None]).sum(dim=2)
    assert torch.equal(ranks, higher + (equal - 1) / 2)
    result = gradient(scores, random_scores(3, n, seed=1).float(), BifocalSorter())
    assert result.isfinite().all()
    assert (result != 0).all()


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 40), scale=st.floats(1e-6, 1e6), shift=st.floats(-9, 9))
def test_bifocal_gradient_is_invariant_to_shift_and_inverse_to_scale(seed, n, scale, shift):
    scores, weights = random_scores(2, n, seed=seed), random_scores(2, n, seed=seed + 1)
    expected = gradient(scores, weights, BifocalSorter())
    result = gradient(scale * (scores + shift), weights, BifocalSorter())
    torch.testing.assert_close(scale * result, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(expected.sum(dim=1), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-9)


def test_bifocal_gradient_decreases_the_loss():
    scores, weights = random_scores(50, 20), random_scores(50, 20, seed=1)
    result = gradient(scores, weights, BifocalSorter())
    # A small step against the gradient moves the soft ranks r so that the weighted sum w · r falls.
    soft = PairwiseSorter(steepness=2.0)
    before, after = ((soft(s) * weights).sum(dim=1) for s in (scores, scores - 1e-4 * result))
    assert (after < before).double().mean() > 0.95


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 30), decimals=st.integers(0, 3))
def test_sort_rows_sorts_like_torch(seed, n, decimals):
    scores = random_scores(3, n, seed=seed).float().round(decimals=decimals)  # ties, and both zeros
    ordered, order = sort_rows(scores)
    torch.testing.assert_close(ordered, scores.sort(dim=-1).values, rtol=0, atol=0)
    assert torch.equal(scores.gather(-1, order), ordered)
    assert torch.equal(order.sort(dim=-1).values, torch.arange(n).expand(3, n))


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 20), scale=st.sampled_from([0.0, 1.0, 1e5]))
def test_decayed_sums_are_their_formula(seed, n, scale):
    values, steps = random_scores(n, seed=seed), scale * random_scores(n - 1, seed=seed + 1).abs()
    left, right = decayed_sums(values, steps)
    for i in range(n):
        weight = [exp(-steps[min(i, j) : max(i, j)].sum().item()) for j in range(n)]
        assert left[i].item() == pytest.approx(sum(weight[j] * values[j].item() for j in range(i + 1)), abs=1e-12)
        assert right[i].item() == pytest.approx(sum(weight[j] * values[j].item() for j in range(i, n)), abs=1e-12)


def test_bifocal_sorter_returns_exact_ranks_of_synthetic_scores():
    scores = synthetic_scores(200, 50, torch.Generator().manual_seed(0))
    assert torch.equal(BifocalSorter()(scores), exact_ranks(scores))
