"""Recall through a sorter: a triplet loss on ranks, and three simpler surrogates."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.losses.hardest_triplet import HardestTripletLoss
from bifocal.losses.sorter_loss import SorterLoss
from bifocal.scores import Scores, check_matches, mean_of_matches

Surrogate = Literal["triplet", "rank", "log_rank", "recall"]


class RecallLoss(SorterLoss):
    """Surrogate of recall in both directions, through a sorter.

    Thesis, section 5.4.3. Each match is ranked among the negatives of its row, then of its column.
    Other positives of the same image are moved behind the last score. They do not change an exact
    rank; a soft sorter ranks the match as if they were further negatives of a low score. The cost
    of a match of rank r, with the ranks r_c of its negatives c, is

    - "triplet": max(0, margin + r - min over c of r_c) / n, eq. (5.12), the hardest negative on
      ranks;
    - "rank": r / n, eq. (5.13), which an approximate sorter's errors can lower without better
      ranks;
    - "log_rank": log(1 + r), which weights the first ranks most;
    - "recall": the mean over K in ``ks`` of sigmoid((r - K + 1/2) / ``softness``), a smooth 1 - R@K
      (5.10).

    Ranks are divided by the number n of scores, as in the authors' code, whose margin of 1 / n is
    ``margin`` 1. The authors sum over the matches where this is a mean.

    The auxiliary loss (section 5.5) is ``HardestTripletLoss``. Other arguments: see ``SorterLoss``.

    Args:
        surrogate: "triplet", "rank", "log_rank" or "recall".
        margin: alpha of eq. (5.11), in ranks, for "triplet". With exact ranks a match of rank 0 is
            always one rank before its hardest negative.
        ks: the K of R@K, in ranks, for "recall".
        softness: width of the sigmoid at K, in ranks, for "recall".

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar, the sum of both directions' mean costs
        of the matches.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> loss, matches = RecallLoss(surrogate="rank"), torch.eye(2, dtype=torch.bool)
        >>> loss(
        ...     Scores(torch.tensor([[0.9, 0.1], [0.2, 0.8]])), matches
        ... ).item()  # every match has rank 0
        0.0
        >>> loss(
        ...     Scores(torch.tensor([[0.1, 0.9], [0.8, 0.2]])), matches
        ... ).item()  # rank 1 of n = 2, twice
        1.0
    """

    auxiliary = HardestTripletLoss

    def __init__(
        self,
        sorter: nn.Module | None = None,
        surrogate: Surrogate = "triplet",
        margin: float = 1.0,
        ks: tuple[int, ...] = (1, 5, 10),
        softness: float = 1.0,
        fine_tune: float = 0.0,
        auxiliary_weight: float = 0.0,
        auxiliary_steps: int | None = None,
    ) -> None:
        super().__init__(sorter, fine_tune, auxiliary_weight, auxiliary_steps)
        self.surrogate, self.margin = surrogate, margin
        self.ks, self.softness = ks, softness

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        yield from super().conflicts(arguments)
        surrogate = arguments.get("surrogate", "triplet")
        for argument, needed in (("margin", "triplet"), ("ks", "recall"), ("softness", "recall")):
            if argument in arguments and surrogate != needed:
                yield (
                    f"{argument} is for surrogate {needed!r}, but surrogate is {surrogate!r}: "
                    f"leave {argument} out"
                )

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        both = self._direction(scores.cross, matches) + self._direction(scores.cross.T, matches.T)
        total: Tensor = both + self.auxiliary_loss(scores, matches)
        return total

    def _direction(self, scores: Tensor, matches: Tensor) -> Tensor:
        queries = rank_each_match(scores, matches)
        ranks, fine_tuning_cost = self.sorter_ranks(queries.scores)
        rank = ranks.gather(1, queries.match).squeeze(1)
        total: Tensor = (
            mean_of_matches(self._cost(rank, ranks, queries.negatives)) + fine_tuning_cost
        )
        return total

    def _cost(self, rank: Tensor, ranks: Tensor, negatives: Tensor) -> Tensor:
        if self.surrogate == "triplet":
            hardest = ranks.masked_fill(~negatives, torch.inf).amin(dim=1)
            return relu(self.margin + rank - hardest) / ranks.shape[1]
        if self.surrogate == "rank":
            return rank / ranks.shape[1]
        if self.surrogate == "log_rank":
            # An approximate sorter may give the best score a rank below 0.
            return torch.log1p(relu(rank))
        return torch.stack([torch.sigmoid((rank - k + 0.5) / self.softness) for k in self.ks]).mean(
            dim=0
        )


class Queries(NamedTuple):
    """One row per match: ``scores`` (K, M), column of the ``match`` (K, 1), ``negatives`` (K, M)
    bool."""

    scores: Tensor
    match: Tensor
    negatives: Tensor


def rank_each_match(scores: Tensor, matches: Tensor) -> Queries:
    """Return one row of scores (N, M) per match, with other positives moved just behind the last
    score."""
    row, column = matches.nonzero(as_tuple=True)
    match = column.unsqueeze(1)
    others = matches[row].scatter(1, match, False)
    lowest, highest = scores.detach().aminmax(dim=1, keepdim=True)
    # Below the last score also where all scores are equal, or where the difference is lost in
    # rounding.
    behind = torch.minimum(
        lowest - 0.01 * (highest - lowest), torch.nextafter(lowest, lowest.new_tensor(-torch.inf))
    )
    return Queries(torch.where(others, behind[row], scores[row]), match, ~matches[row])
