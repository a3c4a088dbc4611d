"""The adversary of thesis 5.6: a model with so much freedom that it could lower the loss without ranking better."""

from typing import NamedTuple

import torch
from torch import nn

from bifocal.sorters.ranks import exact_ranks


class RankGap(NamedTuple):
    """Mean rank of the positives, divided by n: what the sorter says, and what is true."""

    said: float
    true: float


def run_adversary(
    sorter: nn.Module, *, length: int, rows: int, steps: int, learning_rate: float, seed: int
) -> tuple[RankGap, RankGap]:
    """Lower the rank that ``sorter`` gives to the first score of every row, eq. (5.13), all scores being free.

    The scores start uniform over [-1, 1], as the synthetic ones that sorters are trained on, and Adam moves them. A
    sorter is tricked where what it says falls while what is true does not.

    Args:
        learning_rate: of Adam, in units of the scores.

    Returns:
        Before and after.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.rand(rows, length, generator=generator) * 2 - 1).requires_grad_()
    adam = torch.optim.Adam([scores], learning_rate)
    before = _look(sorter, scores)
    for _ in range(steps):
        adam.zero_grad()
        sorter(scores)[:, 0].mean().backward()
        adam.step()
    return before, _look(sorter, scores)


@torch.no_grad()
def _look(sorter: nn.Module, scores: torch.Tensor) -> RankGap:
    ranks = (sorter(scores), exact_ranks(scores))
    return RankGap(*(float(found[:, 0].mean()) / scores.shape[1] for found in ranks))
