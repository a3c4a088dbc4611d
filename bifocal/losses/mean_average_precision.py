"""Mean average precision through a sorter."""

from torch import Tensor

from bifocal.losses.multi_label_soft_margin import MultiLabelSoftMarginLoss
from bifocal.losses.sorter_loss import RankLoss


class MeanAveragePrecisionLoss(RankLoss):
    """Ranks of the matching elements of every class, through a sorter.

    Thesis eq. (5.9): low ranks of what matches stand for a high average precision. The sum of a class is divided by
    its number of matches and by n, and the mean is taken over the classes: the unit is ranks divided by n, whatever the
    batch. A class without a match in the batch has nothing to rank and is left out.

    The plain loss beside it (5.5.2) is the multi-label soft margin loss, for which scores are logits.

    Args: those of ``RankLoss``.

    Shape:
        scores.cross (C classes, n elements), matches (C, n) bool -> scalar.
    """

    plain = MultiLabelSoftMarginLoss

    def rank_cost(self, ranks: Tensor, matches: Tensor) -> Tensor:
        counts = matches.sum(dim=1)
        sums = (ranks * matches).sum(dim=1) / counts.clamp(min=1)
        cost: Tensor = sums.sum() / (counts > 0).sum().clamp(min=1) / ranks.shape[1]
        return cost
