"""Mean average precision through a sorter."""

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bifocal.losses.ranking import Alignment, Ranking
from bifocal.scores import Scores, check_matches


class MeanAveragePrecisionLoss(nn.Module):
    """Ranks of the matching elements of every class, through a sorter.

    Thesis eq. (5.9): low ranks of what matches stand for a high average precision. The sum of a class is divided by
    its number of matches and by n, and the mean is taken over the classes: the unit is ranks divided by n, whatever the
    batch. A class without a match in the batch has nothing to rank and is left out.

    Args:
        sorter: scores (..., n) -> ranks (..., n); ``BifocalSorter()`` if it is not given.
        fine_tune: weight of the L1 error of a trained sorter on these scores, see ``Ranking``.
        alignment_weight: of the multi-label soft margin loss beside it (5.5.2), for which scores are logits.
        alignment_steps: training steps for which that loss is added; all if not given.

    Shape:
        scores.cross (C classes, n elements), matches (C, n) bool -> scalar.
    """

    def __init__(
        self,
        sorter: nn.Module | None = None,
        fine_tune: float = 0.0,
        alignment_weight: float = 0.0,
        alignment_steps: int | None = None,
    ) -> None:
        super().__init__()
        self.ranking = Ranking(sorter, fine_tune)
        self.alignment = Alignment(_soft_margin, alignment_weight, alignment_steps)

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        ranks, cost = self.ranking(scores.cross)
        counts = matches.sum(dim=1)
        rank_sums = (ranks * matches).sum(dim=1) / counts.clamp(min=1)
        rank_cost = rank_sums.sum() / (counts > 0).sum().clamp(min=1) / ranks.shape[1]
        total: Tensor = rank_cost + cost + self.alignment(scores, matches)
        return total


def _soft_margin(scores: Scores, matches: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(scores.cross, matches.to(scores.cross.dtype))
