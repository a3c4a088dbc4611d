"""The handcrafted sorter of SoDeep."""

import torch
from torch import Tensor, nn

from bifocal.sorters.ranks import check_scores


class PairwiseSorter(nn.Module):
    """Sum of sigmoid comparisons with every other score; O(n²) time and memory.

    Thesis eq. (5.2)-(5.3): rank_i = sum over j != i of sigmoid(lambda (s_j - s_i)). The sorter is
    permutation-equivariant, needs no training and accepts any n; equal scores get equal ranks.

    Args:
        steepness: lambda of eq. (5.2), per unit of the scores.
        adaptive: divide lambda by the standard deviation of each vector (by 1 if that is 0), so
            that the ranks do not depend on the scale of the scores; lambda is then per standard
            deviation.

    Shape:
        scores (..., n) -> ranks (..., n), 0 = best.

    Example:
        >>> PairwiseSorter(steepness=100.0)(torch.tensor([0.0, 2.0, 1.0])).round()
        tensor([2., 0., 1.])
    """

    def __init__(self, steepness: float = 10.0, adaptive: bool = False) -> None:
        super().__init__()
        self.steepness = steepness
        self.adaptive = adaptive

    def forward(self, scores: Tensor) -> Tensor:
        scores = check_scores(scores)
        steepness: float | Tensor = self.steepness
        if self.adaptive:
            spread = scores.detach().std(dim=-1, correction=0)[..., None, None]
            steepness = self.steepness / torch.where(spread > 0, spread, 1)
        higher = torch.sigmoid(steepness * (scores[..., None, :] - scores[..., :, None]))
        # The comparison with itself is sigmoid(0).
        return higher.sum(dim=-1) - 0.5
