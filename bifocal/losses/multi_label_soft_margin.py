"""Multi-label soft margin loss: the classification loss of the ranking tasks."""

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bifocal.scores import Scores, check_matches


class MultiLabelSoftMarginLoss(nn.Module):
    """Binary cross-entropy of each (class, element) pair; scores are logits.

    Thesis, section 5.5.2: the surrogate of mean average precision that needs no sorter.

    Shape:
        scores.cross (C classes, n elements), matches (C, n) bool -> scalar, the mean over all
        pairs.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> import torch
        >>> round(
        ...     MultiLabelSoftMarginLoss()(Scores(torch.zeros(1, 3)), torch.ones(1, 3) > 0).item(),
        ...     4,
        ... )  # log 2
        0.6931
    """

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        return binary_cross_entropy_with_logits(scores.cross, matches.to(scores.cross.dtype))
