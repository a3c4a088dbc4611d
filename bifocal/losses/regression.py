"""Regression: the plain loss of graded targets, and of their ranks."""

from typing import Literal

from torch import Tensor, nn

from bifocal.scores import Scores, check_matches
from bifocal.sorters import exact_ranks


class RegressionLoss(nn.Module):
    """Distance of scores and targets.

    The L1 and L2 losses of thesis 5.5.1, and a stronger plain surrogate of Spearman's correlation: regression to the
    ranks that the targets have in their batch.

    Args:
        power: of the distance; 2 for L2, 1 for L1.
        to_ranks: the target is 1/2 - rank / n, from 1/2 for the best down to near -1/2, and not the value itself.

    Shape:
        scores.cross (groups, n), matches (groups, n) graded: the targets -> scalar, the mean over all.

    Raises:
        ValueError: the shapes differ; power is neither 1 nor 2.
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
