"""Spearman correlation through a sorter."""

from torch import Tensor, nn
from torch.nn.functional import l1_loss

from bifocal.losses.ranking import Alignment, Ranking
from bifocal.scores import Scores, check_matches
from bifocal.sorters import exact_ranks


class SpearmanLoss(nn.Module):
    """One minus the Spearman correlation of scores and targets, through a sorter.

    Thesis eq. (5.6), divided by n (n² - 1) / 6 and by the number of rows: with exact ranks and no ties the value is
    1 - r_s of eq. (5.4), averaged over the rows, from 0 to 2. Each row is one group of n scores.

    Args:
        sorter: scores (..., n) -> ranks (..., n); ``BifocalSorter()`` if it is not given.
        fine_tune: weight of the L1 error of a trained sorter on these scores, see ``Ranking``.
        alignment_weight: of the L1 distance of scores and targets beside it (5.5.1); their unit is that of the scores.
        alignment_steps: training steps for which that distance is added; all if not given.

    Shape:
        scores.cross (groups, n), n >= 2, matches (groups, n) graded: the targets -> scalar.

    Raises:
        ValueError: the shapes differ; a group has fewer than two scores.
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
        self.alignment = Alignment(_distance, alignment_weight, alignment_steps)

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        n = scores.cross.shape[1]
        if n < 2:
            raise ValueError(f"scores {tuple(scores.cross.shape)}: a correlation needs groups of two scores or more")
        ranks, cost = self.ranking(scores.cross)
        squares = (ranks - exact_ranks(matches.to(ranks.dtype))).square().sum(dim=1)
        total: Tensor = 6 * squares.mean() / (n * (n**2 - 1)) + cost + self.alignment(scores, matches)
        return total


def _distance(scores: Scores, matches: Tensor) -> Tensor:
    return l1_loss(scores.cross, matches.to(scores.cross.dtype))
