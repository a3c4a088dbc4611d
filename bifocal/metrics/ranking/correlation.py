"""Spearman's rank correlation."""

import math

from torch import Tensor

from bifocal.sorters.ranks import check_scores


def spearman(scores: Tensor, targets: Tensor) -> float:
    """Return Spearman's correlation, in [-1, 1]: Pearson's correlation of the ranks.

    Equal values share their mean rank. Without ties it equals eq. (5.4) of the thesis; with ties eq. (5.4) is
    an approximation.

    Shape:
        scores (n,), targets (n,), n >= 2.

    Returns:
        NaN if all scores or all targets are equal.

    Raises:
        ValueError: the shapes differ, there are fewer than two values, or a value is not finite.

    Example:
        >>> round(spearman(torch.tensor([0.1, 0.9, 0.4]), torch.tensor([1.0, 3.0, 2.0])), 6)
        1.0
    """
    if scores.ndim != 1 or scores.shape != targets.shape or len(scores) < 2:
        raise ValueError(
            f"scores {tuple(scores.shape)} and targets {tuple(targets.shape)}: expected two vectors of equal length, "
            "at least 2"
        )
    pair = [check_scores(values.detach().double()) for values in (scores, targets)]
    if any(bool((values == values[0]).all()) for values in pair):
        return math.nan
    from scipy.stats import spearmanr  # imported here: scipy.stats takes a second

    return float(spearmanr(*(values.cpu().numpy() for values in pair)).statistic)
