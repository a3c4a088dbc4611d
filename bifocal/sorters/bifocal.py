"""The project's own sorter: exact ranks, with a gradient that reaches far."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from bifocal.sorters.order import sort_rows
from bifocal.sorters.ranks import check_scores, ranks_of_ordered

MOST_BANDWIDTHS = 120.0
"""A longer row has all its gaps shortened alike; exponentials of half of it are far from the end of float32."""

SCORES_AT_ONCE = 2**17


class BifocalSorter(nn.Module):
    """Exact ranks forward, the gradient of a wide and scale-aware soft rank backward; O(n log n) time, O(n) memory.

    It looks through two lenses at once. Near: the ranks are those of ``exact_ranks``, so a loss on them is the true
    one, and a model with enough freedom has nothing to trick (thesis 5.6). Far: the gradient is that of

        rank_i = sum over j != i of F((s_j - s_i) / b),    F the Laplace distribution function,

    with the bandwidth b a fraction of the vector's standard deviation, and every gap between neighbours in the order
    counted as ``widest_gap`` bandwidths at most, so that no outlier or far cluster is out of reach. For weights g on
    the ranks the gradient is thus

        grad_i = 1 / (2 b) sum over j of (g_j - g_i) k_ij,    k_ij = exp(-capped distance of s_i and s_j in b) > 0:

    a graph Laplacian. It is zero only when all g are equal, it adds up to zero, and scores times c give it divided
    by c.

    Exact ranks cannot tell a match that is just ahead from one that is far ahead. A loss that weighs ranks by their
    value ("log_rank" and "triplet" of ``RecallLoss``) trains better on the soft ranks themselves: ``exact=False``.

    Permutation-equivariant; equal scores get equal ranks, exactly the mean of those that they fill together; no
    training, any n. The bandwidth is a constant of the gradient, and the standard deviation counts as 1 where all
    scores are equal.

    Args:
        bandwidth: b, in standard deviations of the vector.
        widest_gap: in bandwidths; the least weight of two neighbours in the order is exp(-widest_gap).
        exact: exact ranks; if not, the soft ranks above.

    Shape:
        scores (..., n) -> ranks (..., n), 0 = best.
    """

    def __init__(self, bandwidth: float = 0.6, widest_gap: float = 2.0, exact: bool = True) -> None:
        super().__init__()
        if bandwidth <= 0 or widest_gap <= 0:
            raise ValueError(f"bandwidth is {bandwidth} and widest_gap {widest_gap}: both must be positive")
        self.bandwidth = bandwidth
        self.widest_gap = widest_gap
        self.exact = exact

    def forward(self, scores: Tensor) -> Tensor:
        rows = check_scores(scores).reshape(-1, scores.shape[-1])
        ranks: Tensor = _Ranks.apply(rows, self.bandwidth, self.widest_gap, self.exact)
        return ranks.reshape(scores.shape)


class _Ranks(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, bandwidth: float, widest_gap: float, exact: bool) -> Tensor:
        ordered, order = sort_rows(rows)
        ctx.save_for_backward(ordered, order)
        ctx.bandwidth, ctx.widest_gap = bandwidth, widest_gap
        ranks = ranks_of_ordered(ordered) if exact else _soft_ranks(ordered, bandwidth, widest_gap)
        return torch.empty_like(ordered).scatter_(-1, order, ranks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None, None, None]:
        ordered, order = ctx.saved_tensors
        gradient = torch.empty_like(ordered)
        # In parts that stay in the cache: twice as fast on a CPU, and the temporary memory is that of one part.
        rows = max(1, SCORES_AT_ONCE // ordered.shape[-1])
        for start in range(0, len(ordered), rows):
            part = slice(start, start + rows)
            gradient[part] = _smooth_gradient(ordered[part], order[part], weights[part], ctx.bandwidth, ctx.widest_gap)
        return gradient, None, None, None


def _soft_ranks(ordered: Tensor, fraction: float, widest_gap: float) -> Tensor:
    place, _ = _places(ordered, fraction, widest_gap)
    rise = place.exp_()
    fall = rise.reciprocal()
    below, above = rise.cumsum(dim=-1).mul_(fall), _sum_from_right(fall).mul_(rise)
    higher = torch.arange(ordered.shape[-1] - 1, -1, -1, dtype=ordered.dtype, device=ordered.device)
    # F(x) is exp(x) / 2 below 0 and 1 - exp(-x) / 2 above.
    return higher + (below - above) / 2


def _smooth_gradient(ordered: Tensor, order: Tensor, weights: Tensor, fraction: float, widest_gap: float) -> Tensor:
    place, bandwidth = _places(ordered, fraction, widest_gap)
    rise = place.exp_()
    fall = rise.reciprocal()
    # A weight that all share changes nothing; without it, the difference below loses no digits.
    weights = weights.gather(-1, order)
    weights -= weights.mean(dim=-1, keepdim=True)
    near = (weights * rise).cumsum_(dim=-1).mul_(fall).addcmul_(rise, _sum_from_right(weights * fall))
    mass = rise.cumsum(dim=-1).mul_(fall).addcmul_(rise, _sum_from_right(fall))
    gradient = near.addcmul_(weights, mass, value=-1).div_(2 * bandwidth)
    return torch.empty_like(gradient).scatter_(-1, order, gradient)


def _places(ordered: Tensor, fraction: float, widest_gap: float) -> tuple[Tensor, Tensor]:
    """Where each score of a row stands, in bandwidths from the middle of the row, and the row's bandwidth."""
    centered = ordered - ordered.mean(dim=-1, keepdim=True)
    spread = torch.linalg.vector_norm(centered, dim=-1, keepdim=True) / ordered.shape[-1] ** 0.5
    bandwidth = fraction * torch.where(spread > 0, spread, 1)
    steps = torch.sub(ordered[:, 1:], ordered[:, :-1]).div_(bandwidth).clamp_(max=widest_gap)
    place = torch.zeros_like(ordered)
    torch.cumsum(steps, dim=-1, out=place[:, 1:])
    place -= place[:, -1:] / 2
    place *= (MOST_BANDWIDTHS / 2 / place[:, -1:]).clamp_(max=1)
    return place, bandwidth


def _sum_from_right(values: Tensor) -> Tensor:
    return values.flip(-1).cumsum_(dim=-1).flip(-1)
