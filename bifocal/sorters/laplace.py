"""LapSum: soft ranks from Laplace distribution functions."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from bifocal.sorters.ranks import check_scores, decayed_sums, sort_rows


class LaplaceSorter(nn.Module):
    """Soft ranks as sums of Laplace distribution functions; O(n log n) time, O(n) memory.

    Struski, Bednarczyk, Podolak, Tabor, "LapSum - one method to differentiate them all: ranking, sorting and top-k
    selection", 2025: rank_i = sum over j != i of F((s_j - s_i) / bandwidth). The sorter is permutation-equivariant,
    needs no training and accepts any n; equal scores get equal ranks. A shift of the scores does not change the ranks;
    their scale does, relative to the bandwidth.

    Args:
        bandwidth: bandwidth of the Laplace distribution, in units of the scores.

    Shape:
        scores (..., n) -> ranks (..., n), 0 = best.

    Raises:
        ValueError: ``bandwidth`` is not positive.

    Example:
        >>> LaplaceSorter(bandwidth=0.1)(torch.tensor([0.0, 2.0, 1.0])).round()
        tensor([2., 0., 1.])
    """

    def __init__(self, bandwidth: float = 0.1) -> None:
        super().__init__()
        if bandwidth <= 0:
            raise ValueError(f"bandwidth is {bandwidth}: it must be positive")
        self.bandwidth = bandwidth

    def forward(self, scores: Tensor) -> Tensor:
        rows = check_scores(scores).reshape(-1, scores.shape[-1])
        ranks: Tensor = _LaplaceRanks.apply(rows, self.bandwidth)
        return ranks.reshape(scores.shape)


class _LaplaceRanks(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, bandwidth: float) -> Tensor:
        ordered, order = sort_rows(rows)
        steps = ordered.diff(dim=-1) / bandwidth
        below, above = decayed_sums(torch.ones_like(ordered), steps)
        ctx.save_for_backward(order, steps, below + above)
        ctx.bandwidth = bandwidth
        higher = torch.arange(rows.shape[-1] - 1, -1, -1, dtype=rows.dtype, device=rows.device)
        # F(x) is exp(x) / 2 below 0 and 1 - exp(-x) / 2 above.
        return torch.empty_like(ordered).scatter_(-1, order, higher + (below - above) / 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None]:
        order, steps, mass = ctx.saved_tensors
        weights = weights.gather(-1, order)
        left, right = decayed_sums(weights, steps)
        gradient = (left + right - weights * mass) / (2 * ctx.bandwidth)
        return torch.empty_like(gradient).scatter_(-1, order, gradient), None
