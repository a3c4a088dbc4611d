"""Soft ranks by projection onto the permutahedron."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from bifocal.sorters.ranks import check_scores, sort_rows


class PermutahedronSorter(nn.Module):
    """Euclidean projection of -scores / strength onto the permutahedron of the ranks; O(n log n) time, O(n) memory.

    Blondel et al., "Fast differentiable sorting and ranking", ICML 2020, eq. (5)-(8) with quadratic regularization,
    computed by SciPy's isotonic regression on the CPU. The sorter is permutation-equivariant, needs no training and
    accepts any n. Scores that differ by more than ``strength`` get exact ranks and no gradient.

    Args:
        strength: epsilon of the paper, strength of the regularization in units of the scores.

    Shape:
        scores (..., n) -> ranks (..., n), 0 = best.

    Raises:
        ValueError: ``strength`` is not positive.

    Example:
        >>> PermutahedronSorter(strength=0.1)(torch.tensor([0.0, 2.0, 1.0]))
        tensor([2., 0., 1.])
    """

    def __init__(self, strength: float = 1.0) -> None:
        super().__init__()
        if strength <= 0:
            raise ValueError(f"strength is {strength}: it must be positive")
        self.strength = strength

    def forward(self, scores: Tensor) -> Tensor:
        rows = check_scores(scores).reshape(-1, scores.shape[-1])
        ranks: Tensor = _ProjectedRanks.apply(rows, self.strength)
        return ranks.reshape(scores.shape)


class _ProjectedRanks(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, strength: float) -> Tensor:
        from scipy.optimize import isotonic_regression  # imported here: scipy.optimize takes a second

        ordered, order = sort_rows(rows)
        # Ascending scores give descending z; ranks are z minus the decreasing regression of z - (n - 1, ..., 0).
        z = -ordered.double().cpu().numpy() / strength
        residual = z - np.arange(rows.shape[-1] - 1, -1, -1)
        # One regression for all rows: offsets between them keep their blocks separate.
        offsets = (np.ptp(residual) + 1) * np.arange(len(residual))[:, None]
        blocks = isotonic_regression((residual - offsets).ravel(), increasing=False).blocks
        counts = np.diff(blocks)
        mean = np.add.reduceat(residual.ravel(), blocks[:-1]) / counts
        ranks = torch.from_numpy(z - np.repeat(mean, counts).reshape(z.shape)).to(rows)
        ctx.save_for_backward(order)
        ctx.blocks, ctx.strength = blocks, strength
        return torch.empty_like(ranks).scatter_(-1, order, ranks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        sorted_weights = weights.gather(-1, order).double().cpu().numpy()
        counts = np.diff(ctx.blocks)
        mean = np.add.reduceat(sorted_weights.ravel(), ctx.blocks[:-1]) / counts
        within = sorted_weights - np.repeat(mean, counts).reshape(sorted_weights.shape)
        gradient = torch.from_numpy(-within / ctx.strength).to(weights)
        return torch.empty_like(gradient).scatter_(-1, order, gradient), None
