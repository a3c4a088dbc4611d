"""The adversary of thesis 5.6: free scores that lower a rank loss, perhaps without ranking
better."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from bifocal.sorters.ranks import exact_ranks


class RankGap(NamedTuple):
    """Mean rank of the positives divided by n: predicted by the sorter, and actual."""

    predicted: float
    actual: float


def run_adversary(
    sorter: nn.Module, *, length: int, rows: int, steps: int, learning_rate: float, seed: int
) -> tuple[RankGap, RankGap]:
    """Minimize the rank that ``sorter`` predicts for each row's first score by Adam, eq. (5.13),
    over all scores.

    A sorter is fooled if the predicted rank falls while the actual rank does not. Return the ranks
    before and after.

    Example:
        >>> from bifocal.sorters import ExactRankSorter
        >>> before, after = run_adversary(
        ...     ExactRankSorter(), length=8, rows=4, steps=50, learning_rate=0.1, seed=0
        ... )
        >>> after.actual < before.actual
        True
    """
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.rand(rows, length, generator=generator) * 2 - 1).requires_grad_()
    adam = torch.optim.Adam([scores], learning_rate)
    before = _mean_ranks(sorter, scores)
    for _ in range(steps):
        adam.zero_grad()
        sorter(scores)[:, 0].mean().backward()
        adam.step()
    return before, _mean_ranks(sorter, scores)


@torch.no_grad()
def _mean_ranks(sorter: nn.Module, scores: Tensor) -> RankGap:
    ranks = (sorter(scores), exact_ranks(scores))
    return RankGap(*(float(row_ranks[:, 0].mean()) / scores.shape[1] for row_ranks in ranks))
