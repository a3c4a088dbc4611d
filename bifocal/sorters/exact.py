"""Exact ranks, with the gradient of a wide soft rank."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from bifocal.sorters.ranks import check_scores, ranks_of_ordered, sort_rows

MAX_WIDTH = 120.0
"""Maximum width of a row, in bandwidths; a wider row is scaled down. exp(60) is far below the
maximum of float32."""

SCORES_PER_CHUNK = 2**17


class ExactRankSorter(nn.Module):
    """Exact ranks in the forward pass, the gradient of a scale-aware soft rank in the backward
    pass.

    O(n log n) time, O(n) memory. Near: the ranks equal ``exact_ranks``, so a loss on them is the
    true loss, and an adversary (thesis 5.6) cannot fool it. Far: the gradient is the gradient of

        rank_i = sum over j != i of F((s_j - s_i) / b),    F the Laplace distribution function,

    where the bandwidth b is a fraction of the vector's standard deviation, and each gap between
    neighbors in the sorted order counts as at most ``max_gap`` bandwidths, so that outliers and
    distant clusters still get a gradient. For weights g on the ranks the gradient is

        grad_i = 1 / (2 b) sum over j of (g_j - g_i) k_ij,    k_ij = exp(-capped distance of s_i and
        s_j in b) > 0,

    a graph Laplacian. It is zero only if all g are equal, it sums to zero, and multiplying the
    scores by c divides it by c.

    Exact ranks do not distinguish a match that is barely ahead from one that is far ahead. A loss
    that weights ranks by their value ("log_rank" and "triplet" of ``RecallLoss``) trains better on
    the soft ranks: ``exact=False``.

    The sorter is permutation-equivariant, needs no training and accepts any n. Equal scores get
    equal ranks, exactly the mean of the ranks that they occupy. The bandwidth is a constant in the
    gradient; if all scores are equal, the standard deviation counts as 1.

    Args:
        bandwidth: b, in standard deviations of the vector.
        max_gap: in bandwidths; two neighbors in the sorted order have a weight of at least
            exp(-max_gap).
        exact: return exact ranks; if false, the soft ranks above.

    Shape:
        scores (..., n) -> ranks (..., n), 0 = best.

    Raises:
        ValueError: ``bandwidth`` or ``max_gap`` is not positive.

    Example:
        >>> ExactRankSorter()(torch.tensor([0.1, 0.9, 0.5]))
        tensor([2., 0., 1.])
    """

    def __init__(self, bandwidth: float = 0.6, max_gap: float = 2.0, exact: bool = True) -> None:
        super().__init__()
        if bandwidth <= 0 or max_gap <= 0:
            raise ValueError(
                f"bandwidth is {bandwidth} and max_gap {max_gap}: both must be positive"
            )
        self.bandwidth = bandwidth
        self.max_gap = max_gap
        self.exact = exact

    def forward(self, scores: Tensor) -> Tensor:
        rows = check_scores(scores).reshape(-1, scores.shape[-1])
        ranks: Tensor = _Ranks.apply(rows, self.bandwidth, self.max_gap, self.exact)
        return ranks.reshape(scores.shape)


class _Ranks(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, bandwidth: float, max_gap: float, exact: bool) -> Tensor:
        ordered, order = sort_rows(rows)
        ctx.save_for_backward(ordered, order)
        ctx.bandwidth, ctx.max_gap = bandwidth, max_gap
        ranks = ranks_of_ordered(ordered) if exact else _soft_ranks(ordered, bandwidth, max_gap)
        return torch.empty_like(ordered).scatter_(-1, order, ranks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None, None, None]:
        ordered, order = ctx.saved_tensors
        gradient = torch.empty_like(ordered)
        # Chunks that fit the cache: twice as fast on a CPU, and temporary memory for one chunk
        # only.
        rows = max(1, SCORES_PER_CHUNK // ordered.shape[-1])
        for start in range(0, len(ordered), rows):
            chunk = slice(start, start + rows)
            gradient[chunk] = _smooth_gradient(
                ordered[chunk], order[chunk], weights[chunk], ctx.bandwidth, ctx.max_gap
            )
        return gradient, None, None, None


def _soft_ranks(ordered: Tensor, fraction: float, max_gap: float) -> Tensor:
    position, _ = _positions(ordered, fraction, max_gap)
    rise = position.exp_()
    fall = rise.reciprocal()
    below, above = rise.cumsum(dim=-1).mul_(fall), _sum_from_right(fall).mul_(rise)
    higher = torch.arange(ordered.shape[-1] - 1, -1, -1, dtype=ordered.dtype, device=ordered.device)
    # F(x) is exp(x) / 2 below 0 and 1 - exp(-x) / 2 above.
    return higher + (below - above) / 2


def _smooth_gradient(
    ordered: Tensor, order: Tensor, weights: Tensor, fraction: float, max_gap: float
) -> Tensor:
    position, bandwidth = _positions(ordered, fraction, max_gap)
    rise = position.exp_()
    fall = rise.reciprocal()
    # A constant added to all weights does not change the gradient; remove it to avoid cancellation
    # below.
    weights = weights.gather(-1, order)
    weights -= weights.mean(dim=-1, keepdim=True)
    near = (
        (weights * rise).cumsum_(dim=-1).mul_(fall).addcmul_(rise, _sum_from_right(weights * fall))
    )
    mass = rise.cumsum(dim=-1).mul_(fall).addcmul_(rise, _sum_from_right(fall))
    gradient = near.addcmul_(weights, mass, value=-1).div_(2 * bandwidth)
    return torch.empty_like(gradient).scatter_(-1, order, gradient)


def _positions(ordered: Tensor, fraction: float, max_gap: float) -> tuple[Tensor, Tensor]:
    """Position of each score, in bandwidths from the middle of its row with capped gaps, and the
    row's bandwidth."""
    centered = ordered - ordered.mean(dim=-1, keepdim=True)
    spread = torch.linalg.vector_norm(centered, dim=-1, keepdim=True) / ordered.shape[-1] ** 0.5
    bandwidth = fraction * torch.where(spread > 0, spread, 1)
    steps = torch.sub(ordered[:, 1:], ordered[:, :-1]).div_(bandwidth).clamp_(max=max_gap)
    position = torch.zeros_like(ordered)
    torch.cumsum(steps, dim=-1, out=position[:, 1:])
    position -= position[:, -1:] / 2
    position *= (MAX_WIDTH / 2 / position[:, -1:]).clamp_(max=1)
    return position, bandwidth


def _sum_from_right(values: Tensor) -> Tensor:
    return values.flip(-1).cumsum_(dim=-1).flip(-1)
