"""Mean average precision through a sorter."""

from torch import Tensor

from bifocal.losses.multi_label_soft_margin import MultiLabelSoftMarginLoss
from bifocal.losses.sorter_loss import RowRankLoss


class MeanAveragePrecisionLoss(RowRankLoss):
    """Mean rank of the matching elements of each class, through a sorter.

    Thesis eq. (5.9): low ranks of the matches give a high average precision. The sum of a class is
    divided by its number of matches and by n, then averaged over the classes: the unit is ranks
    divided by n, for any batch. A class without a match in the batch is left out. The auxiliary
    loss (section 5.5.2) is ``MultiLabelSoftMarginLoss``, for which scores are logits. Arguments:
    see ``SorterLoss``.

    Shape:
        scores.cross (C classes, n elements), matches (C, n) bool -> scalar.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> import torch
        >>> from bifocal.scores import Scores
        >>> loss, matches = MeanAveragePrecisionLoss(), torch.tensor([[False, True, True, False]])
        >>> loss(
        ...     Scores(torch.tensor([[0.1, 0.9, 0.8, 0.2]])), matches
        ... ).item()  # mean rank 0.5 of n = 4
        0.125
    """

    auxiliary = MultiLabelSoftMarginLoss

    def rank_cost(self, ranks: Tensor, matches: Tensor) -> Tensor:
        counts = matches.sum(dim=1)
        sums = (ranks * matches).sum(dim=1) / counts.clamp(min=1)
        cost: Tensor = sums.sum() / (counts > 0).sum().clamp(min=1) / ranks.shape[1]
        return cost
