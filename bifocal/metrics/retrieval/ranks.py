"""Ranks of a query's best correct candidate, and what follows from them: R@K, median and mean rank.

Tied candidates have no order. Their rule here: as if each order among them were equally likely, so R@K of a query is
the probability that a correct candidate is among the first K, and its rank the expected one. The result depends
neither on a sorting algorithm nor on the order of rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """Where each query's best correct candidate stands.

    Attributes:
        above: (Q,) int64, wrong candidates that score higher than it.
        tied: (Q,) int64, wrong candidates that score the same.
        correct: (Q,) int64, correct candidates that have that score, itself included.
    """

    above: Tensor
    tied: Tensor
    correct: Tensor

    def hits(self, k: int) -> Tensor:
        """(Q,) float64, the probability that a correct candidate is among the first ``k``: 0 or 1 without ties.

        A ``k`` beyond the gallery is a hit: everything is retrieved.

        Raises:
            ValueError: ``k`` is less than 1.
        """
        if k < 1:
            raise ValueError(f"R@K needs K of at least 1, got {k}")
        places = (k - self.above).clamp(min=0)
        # The correct ones are dealt into the tie one after the other. The i-th lands among the first `places` of the
        # tied + i candidates with probability places / (tied + i), if none did before; a sum of what is not negative
        # loses no digit, and a place beyond the wrong ones is a hit for sure.
        hit = torch.zeros(len(self.above), dtype=torch.float64, device=self.above.device)
        for number in range(1, 1 + int(self.correct.max()) if len(hit) else 1):
            share = (places / (self.tied + number).double()).clamp(max=1.0)
            hit = torch.where(self.correct >= number, hit + (1 - hit) * share, hit)
        return hit

    def recall(self, k: int) -> float:
        """R@K in [0, 1]: the share of queries with a correct candidate among the first ``k``."""
        return float(self.hits(k).mean())

    def expected(self) -> Tensor:
        """(Q,) float64, the expected rank, from 0."""
        return self.above + self.tied / (self.correct + 1).double()

    def median(self) -> float:
        """The median rank, from 1."""
        # Not quantile, which refuses more than 2^24 queries and sorts in float32.
        ordered = self.expected().sort().values
        return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 + 1.0

    def mean(self) -> float:
        """The mean rank, from 1."""
        return float(self.expected().mean()) + 1.0


def ranks(scores: Tensor, matches: Tensor) -> Ranks:
    """Ranks of the best correct candidate of each row of a matrix that stands in memory.

    Shape:
        scores (Q, C), matches (Q, C) bool.

    Raises:
        ValueError: a score is NaN, or a query has no correct candidate.

    Example:
        >>> found = ranks(torch.tensor([[0.3, 0.9, 0.5]]), torch.tensor([[True, False, True]]))
        >>> found.expected().tolist()
        [1.0]
    """
    if scores.isnan().any():
        raise ValueError(f"scores are NaN in {int(scores.isnan().any(dim=1).sum())} of {len(scores)} queries")
    if not matches.any(dim=1).all():
        without = int((~matches.any(dim=1)).sum())
        raise ValueError(f"{without} of {len(scores)} queries have no correct candidate: leave them out, or add it")
    best = scores.masked_fill(~matches, -torch.inf).amax(dim=1, keepdim=True)
    tied = scores == best
    return Ranks(
        above=(scores > best).sum(dim=1),
        tied=(tied & ~matches).sum(dim=1),
        correct=(tied & matches).sum(dim=1),
    )


def joined(parts: Iterable[Ranks]) -> Ranks:
    """The queries of all ``parts``, one after the other."""
    above, tied, correct = zip(*((part.above, part.tied, part.correct) for part in parts), strict=True)
    return Ranks(torch.cat(above), torch.cat(tied), torch.cat(correct))
