"""Spearman correlation through a sorter."""

from functools import partial

from torch import Tensor

from bifocal.losses.regression import RegressionLoss
from bifocal.losses.sorter_loss import RowRankLoss
from bifocal.sorters import exact_ranks


class SpearmanLoss(RowRankLoss):
    """One minus the Spearman correlation of scores and targets, through a sorter.

    Thesis eq. (5.6), divided by n (n² - 1) / 6 and by the number of rows: with exact ranks and no
    ties the value is 1 - r_s of eq. (5.4), averaged over the rows, from 0 to 2. Each row is one
    group of n scores.

    The default sorter is soft, ``ExactRankSorter(exact=False)``: the loss squares rank differences,
    and only soft ranks make it a smooth function of the scores. With ``ExactRankSorter()`` the
    value is exactly 1 - r_s, and training is a little worse. The auxiliary loss (section 5.5.1) is
    the L1 distance of scores and targets, in units of the score.
    Arguments: see ``SorterLoss``.

    Shape:
        scores.cross (groups, n), n >= 2, matches (groups, n) graded: the targets -> scalar.

    Raises:
        ValueError: the shapes differ, or a group has fewer than two scores.

    Example:
        >>> import torch
        >>> from bifocal.scores import Scores
        >>> from bifocal.sorters import ExactRankSorter
        >>> loss = SpearmanLoss(ExactRankSorter())
        >>> loss(
        ...     Scores(torch.tensor([[3.0, 1.0, 2.0]])), torch.tensor([[9.0, 4.0, 5.0]])
        ... ).item()  # the same order
        0.0
    """

    auxiliary = partial(RegressionLoss, power=1)
    exact = False

    def rank_cost(self, ranks: Tensor, matches: Tensor) -> Tensor:
        n = ranks.shape[1]
        if n < 2:
            raise ValueError(
                f"scores {tuple(ranks.shape)}: a correlation needs groups of two scores or more"
            )
        squares = (ranks - exact_ranks(matches.to(ranks.dtype))).square().sum(dim=1)
        return 6 * squares.mean() / (n * (n**2 - 1))
