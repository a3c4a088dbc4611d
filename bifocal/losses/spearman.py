"""Spearman correlation through a sorter."""

from functools import partial

from torch import Tensor

from bifocal.losses.regression import RegressionLoss
from bifocal.losses.sorter_loss import RankLoss
from bifocal.sorters import exact_ranks


class SpearmanLoss(RankLoss):
    """One minus the Spearman correlation of scores and targets, through a sorter.

    Thesis eq. (5.6), divided by n (n² - 1) / 6 and by the number of rows: with exact ranks and no ties the value is
    1 - r_s of eq. (5.4), averaged over the rows, from 0 to 2. Each row is one group of n scores.

    Its squares weigh ranks by their value, so the sorter that it has by itself is soft: a step goes along the gradient
    of a smooth function of the scores. With ``BifocalSorter()`` the value is 1 - r_s itself, and training is a little
    worse.

    The plain loss beside it (5.5.1) is the L1 distance of scores and targets, in the unit of the scores.

    Args: those of ``RankLoss``.

    Shape:
        scores.cross (groups, n), n >= 2, matches (groups, n) graded: the targets -> scalar.

    Raises:
        ValueError: the shapes differ; a group has fewer than two scores.
    """

    plain = partial(RegressionLoss, power=1)
    exact = False

    def rank_cost(self, ranks: Tensor, matches: Tensor) -> Tensor:
        n = ranks.shape[1]
        if n < 2:
            raise ValueError(f"scores {tuple(ranks.shape)}: a correlation needs groups of two scores or more")
        squares = (ranks - exact_ranks(matches.to(ranks.dtype))).square().sum(dim=1)
        return 6 * squares.mean() / (n * (n**2 - 1))
