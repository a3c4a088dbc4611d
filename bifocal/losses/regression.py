"""Regression to graded targets, or to their ranks."""

from typing import Literal

from torch import Tensor, nn

from bifocal.scores import Scores, check_matches
from bifocal.sorters import exact_ranks


class RegressionLoss(nn.Module):
    """L1 or L2 distance of scores and targets.

    Thesis, section 5.5.1: the losses that need no sorter. With ``to_ranks`` a stronger surrogate of
    Spearman's
    correlation: regression to the ranks of the targets within their group.

    Args:
        power: of the distance; 2 for L2, 1 for L1.
        to_ranks: replace each target by 1/2 - rank / n, which falls from 1/2 for the best to nearly
            -1/2.

    Shape:
        scores.cross (groups, n), matches (groups, n) graded: the targets -> scalar, the mean over
        all scores.

    Raises:
        ValueError: the shapes differ, or power is neither 1 nor 2.

    Example:
        >>> import torch
        >>> RegressionLoss(power=1)(
        ...     Scores(torch.tensor([[0.0, 2.0]])), torch.tensor([[1.0, 2.0]])
        ... ).item()
        0.5
    """

    def __init__(self, power: Literal[1, 2] = 2, to_ranks: bool = False) -> None:
        super().__init__()
        if power not in (1, 2):
            raise ValueError(f"power is {power}, expected 1 or 2")
        self.power, self.to_ranks = power, to_ranks

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        targets = matches.to(scores.cross.dtype)
        if self.to_ranks:
            targets = 0.5 - exact_ranks(targets) / targets.shape[1]
        return (scores.cross - targets).abs().pow(self.power).mean()
