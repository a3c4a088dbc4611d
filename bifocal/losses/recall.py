"""Recall through a sorter: the triplet loss on ranks, and three plainer surrogates."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from bifocal.losses.hardest_triplet import HardestTripletLoss
from bifocal.losses.sorter_loss import RankLoss
from bifocal.scores import Scores, check_matches

Surrogate = Literal["triplet", "rank", "log_rank", "recall"]


class RecallLoss(RankLoss):
    """Recall in both directions, through a sorter.

    Thesis 5.4.3. Every match is ranked among the negatives of its row, then of its column: the other positives of the
    same image stand behind all, as they neither harm nor help it. Its cost, with r its rank and c the negatives, is

    - "triplet": max(0, margin + r - min over c of r_c), eq. (5.12), the hardest negative on ranks;
    - "rank": r / n, eq. (5.13), which a sorter that is only approximate can be tricked by;
    - "log_rank": log(1 + r), which cares most about the first places;
    - "recall": the mean over K of ``recall_at`` of sigmoid((r - K + 1/2) / ``softness``), a smooth 1 - R@K (5.10).

    Args:
        sorter, fine_tune, alignment_weight, alignment_steps: see ``RankLoss``; the plain loss beside it (5.5) is a
            ``HardestTripletLoss``.
        surrogate: one of the four.
        margin: alpha of eq. (5.11), in ranks, 1 being the next place. Under exact ranks a match that comes first is
            at -1 from the hardest negative, whatever their scores.
        recall_at: the K of "recall", in ranks.
        softness: of the step at K, in ranks.

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar, the mean over the matches of both directions' costs.
    """

    plain = HardestTripletLoss

    def __init__(
        self,
        sorter: nn.Module | None = None,
        surrogate: Surrogate = "triplet",
        margin: float = 1.0,
        recall_at: tuple[int, ...] = (1, 5, 10),
        softness: float = 1.0,
        fine_tune: float = 0.0,
        alignment_weight: float = 0.0,
        alignment_steps: int | None = None,
    ) -> None:
        super().__init__(sorter, fine_tune, alignment_weight, alignment_steps)
        self.surrogate, self.margin = surrogate, margin
        self.recall_at, self.softness = recall_at, softness

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        check_matches(scores.cross, matches)
        if not matches.any():
            return scores.cross.sum() * 0
        both = self._direction(scores.cross, matches) + self._direction(scores.cross.T, matches.T)
        total: Tensor = both + self.alignment(scores, matches)
        return total

    def _direction(self, scores: Tensor, matches: Tensor) -> Tensor:
        queries = rank_each_match(scores, matches)
        ranks, cost = self.ranking(queries.scores)
        rank = ranks.gather(1, queries.match).squeeze(1)
        total: Tensor = self._cost(rank, ranks, queries.negatives).mean() + cost
        return total

    def _cost(self, rank: Tensor, ranks: Tensor, negatives: Tensor) -> Tensor:
        if self.surrogate == "triplet":
            hardest = ranks.masked_fill(~negatives, torch.inf).amin(dim=1)
            return relu(self.margin + rank - hardest)
        if self.surrogate == "rank":
            return rank / ranks.shape[1]
        if self.surrogate == "log_rank":
            # An approximate sorter may give the best score a rank below 0.
            return torch.log1p(relu(rank))
        return torch.stack([torch.sigmoid((rank - k + 0.5) / self.softness) for k in self.recall_at]).mean(dim=0)


class Queries(NamedTuple):
    """One row per match: ``scores`` (K, M), the place of the ``match`` (K, 1), ``negatives`` (K, M) bool."""

    scores: Tensor
    match: Tensor
    negatives: Tensor


def rank_each_match(scores: Tensor, matches: Tensor) -> Queries:
    """One row of scores for every match, in which its row's other positives stand just behind the last score.

    Shape:
        scores (N, M), matches (N, M) bool with K matches.
    """
    row, column = matches.nonzero(as_tuple=True)
    match = column.unsqueeze(1)
    others = matches[row].scatter(1, match, False)
    lowest, highest = scores.detach().aminmax(dim=1, keepdim=True)
    behind = lowest - 0.01 * (highest - lowest)
    return Queries(torch.where(others, behind[row], scores[row]), match, ~matches[row])
