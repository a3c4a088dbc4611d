"""Ranks from relaxed permutation matrices: NeuralSort and SoftSort."""

import torch
from torch import Tensor, nn

from bifocal.sorters.ranks import check_scores


class NeuralSorter(nn.Module):
    """Ranks from the relaxed permutation matrix of NeuralSort; O(n²) time and memory.

    Grover et al., "Stochastic optimization of sorting networks via continuous relaxations", ICLR 2019, eq. (5): row i
    of P is softmax(((n + 1 - 2 i) s - A 1) / temperature) with A_jk = |s_j - s_k|; the ranks are P' (0, ..., n - 1).
    The sorter is permutation-equivariant, needs no training and accepts any n.

    Args:
        temperature: tau of the paper, in units of the scores.

    Shape:
        scores (..., n) -> ranks (..., n), 0 = best.

    Example:
        >>> NeuralSorter(temperature=0.01)(torch.tensor([0.0, 2.0, 1.0])).round()
        tensor([2., 0., 1.])
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, scores: Tensor) -> Tensor:
        scores = check_scores(scores)
        positions = torch.arange(scores.shape[-1], dtype=scores.dtype, device=scores.device)
        distances = (scores[..., :, None] - scores[..., None, :]).abs().sum(dim=-1)
        scaling = scores.shape[-1] - 1 - 2 * positions
        logits = scaling[:, None] * scores[..., None, :] - distances[..., None, :]
        return positions @ torch.softmax(logits / self.temperature, dim=-1)


class SoftSorter(nn.Module):
    """Ranks from the relaxed permutation matrix of SoftSort; O(n²) time and memory.

    Prillo, Eisenschlos, "SoftSort: a continuous relaxation for the argsort operator", ICML 2020, eq. (3): row i of P is
    softmax(-|sorted(s)_i - s| / temperature); the ranks are P' (0, ..., n - 1). The sorter is permutation-equivariant,
    needs no training and accepts any n.

    Args:
        temperature: tau of the paper, in units of the scores.

    Shape:
        scores (..., n) -> ranks (..., n), 0 = best.

    Example:
        >>> SoftSorter(temperature=0.01)(torch.tensor([0.0, 2.0, 1.0])).round()
        tensor([2., 0., 1.])
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, scores: Tensor) -> Tensor:
        scores = check_scores(scores)
        positions = torch.arange(scores.shape[-1], dtype=scores.dtype, device=scores.device)
        ordered = scores.sort(dim=-1, descending=True).values
        distances = (ordered[..., :, None] - scores[..., None, :]).abs()
        return positions @ torch.softmax(-distances / self.temperature, dim=-1)
