"""Structured hinge loss of average precision."""

import torch
from torch import Tensor, nn

from bifocal.scores import Scores, check_matches


class HingeAveragePrecisionLoss(nn.Module):
    """Structured hinge upper bound of 1 - AP, with exact loss-augmented inference.

    Yue, Finley, Radlinski and Joachims, "A support vector method for optimizing average precision",
    SIGIR 2007: for the P matches and N negatives of a class, a ranking has y_ij = 1 if it places
    match i above negative j and -1 otherwise, and the score S(y) = 1 / (P N) x sum over i, j of
    y_ij (s_i - s_j). The loss is

        max over rankings y of [1 - AP(y) + S(y)] - S(y*),

    where y* places all matches first. With matches and negatives in the order of their scores, the
    best place of each negative does not depend on the others (their algorithm 1): the maximum takes
    O(P N) time and is exact. This is the Hinge-AP of thesis figure 5.7. A class without a match or
    without a negative is left out.

    Shape:
        scores.cross (C classes, n elements), matches (C, n) bool -> scalar, the mean over the
        classes.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> loss, matches = HingeAveragePrecisionLoss(), torch.tensor([[True, False]])
        >>> loss(
        ...     Scores(torch.tensor([[3.0, 1.0]])), matches
        ... ).item()  # right, and by more than the margin
        0.0
        >>> loss(Scores(torch.tensor([[0.0, 0.0]])), matches).item()  # 1 - AP of the worst ranking
        0.5
    """

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        rows = [(row, match.bool()) for row, match in zip(scores.cross, matches, strict=True)]
        costs = [
            _hinge(row[match], row[~match])
            for row, match in rows
            if match.any() and not match.all()
        ]
        return torch.stack(costs).mean() if costs else scores.cross.sum() * 0


def _hinge(matches: Tensor, negatives: Tensor) -> Tensor:
    """Return the loss of one class.

    The j-th negative above the i-th match changes precision from i / (i + j - 1) to i / (i + j),
    and S by -2 (s_i - s_j) / (P N).
    """
    positive, negative = (
        matches.sort(descending=True).values,
        negatives.sort(descending=True).values,
    )
    i = torch.arange(1, len(positive) + 1, device=positive.device, dtype=positive.dtype).unsqueeze(
        1
    )
    j = torch.arange(1, len(negative) + 1, device=positive.device, dtype=positive.dtype)
    lost_precision = (i / (i + j - 1) - i / (i + j)) / len(positive)
    gain = lost_precision - 2 * (positive.unsqueeze(1) - negative) / (len(positive) * len(negative))
    of_place = gain.flip(0).cumsum(dim=0)
    cost: Tensor = of_place.amax(dim=0).clamp(min=0).sum()
    return cost
