"""Ranks of each query's best correct candidate, and R@K, median and mean rank.

Tied candidates count as if each order were equally likely, so metrics do not depend on the order of
rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST = 1e-3
"""Smallest best score by which re-ranking divides."""


@dataclass(frozen=True)
class Ranks:
    """Rank of each query's best correct candidate, by counts.

    Attributes:
        better: (Q,) int64, wrong candidates with a higher score.
        tied: (Q,) int64, wrong candidates with the same score.
        correct: (Q,) int64, correct candidates with that score, itself included.
    """

    better: Tensor
    tied: Tensor
    correct: Tensor

    def hits(self, k: int) -> Tensor:
        """Return (Q,) float64, the probability that a correct candidate is among the first ``k``: 0
        or 1 without ties.

        A ``k`` beyond the number of candidates gives 1.

        Raises:
            ValueError: ``k`` is less than 1.
        """
        if k < 1:
            raise ValueError(f"R@K needs K of at least 1, got {k}")
        free = (k - self.better).clamp(min=0)
        # Insert the correct candidates into the tie one after the other. The i-th is among the
        # first `free` of the tied + i candidates with probability free / (tied + i), if none before
        # it is. Summing non-negative terms keeps full precision, and a `free` beyond the wrong
        # candidates gives exactly 1.
        hit = torch.zeros(len(self.better), dtype=torch.float64, device=self.better.device)
        for number in range(1, 1 + int(self.correct.max()) if len(hit) else 1):
            probability = (free / (self.tied + number).double()).clamp(max=1.0)
            hit = torch.where(self.correct >= number, hit + (1 - hit) * probability, hit)
        return hit

    def recall(self, k: int) -> float:
        """Return R@K in [0, 1]: the share of queries with a correct candidate among the first
        ``k``."""
        return float(self.hits(k).mean())

    def expected(self) -> Tensor:
        """Return (Q,) float64, the expected rank, from 0."""
        return self.better + self.tied / (self.correct + 1).double()

    def median(self) -> float:
        """Return the median rank, from 1."""
        # torch.quantile refuses more than 2^24 queries and sorts in float32.
        ordered = self.expected().sort().values
        return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 + 1.0

    def mean(self) -> float:
        """Return the mean rank, from 1."""
        return float(self.expected().mean()) + 1.0


def ranks(scores: Tensor, matches: Tensor) -> Ranks:
    """Return the rank of the best correct candidate in each row of a matrix.

    Shape:
        scores (Q, C), matches (Q, C) bool.

    Raises:
        ValueError: a score is NaN, or a query has no correct candidate.

    Example:
        >>> ranks(
        ...     torch.tensor([[0.3, 0.9, 0.5]]), torch.tensor([[True, False, True]])
        ... ).expected().tolist()
        [1.0]
    """
    if scores.isnan().any():
        raise ValueError(
            f"scores are NaN in {int(scores.isnan().any(dim=1).sum())} of {len(scores)} queries"
        )
    if not matches.any(dim=1).all():
        without = int((~matches.any(dim=1)).sum())
        raise ValueError(
            f"{without} of {len(scores)} queries have no correct candidate: add it, or leave "
            "them out"
        )
    best = scores.masked_fill(~matches, -torch.inf).amax(dim=1, keepdim=True)
    tied = scores == best
    return Ranks(
        better=(scores > best).sum(dim=1),
        tied=(tied & ~matches).sum(dim=1),
        correct=(tied & matches).sum(dim=1),
    )


def concatenate(parts: Iterable[Ranks]) -> Ranks:
    """Return the queries of all ``parts``, in order."""
    better, tied, correct = zip(
        *((part.better, part.tied, part.correct) for part in parts), strict=True
    )
    return Ranks(torch.cat(better), torch.cat(tied), torch.cat(correct))


def rerank_for_captions(scores: Tensor) -> Tensor:
    """Return scores for caption retrieval normalized by each caption's best image, thesis eq.
    (3.13).

    A caption whose best score is below ``LEAST`` keeps its scores, which differs from the equation:
    the ratio would place its scores before all others, or reverse their order.

    Shape:
        (N images, M captions) -> (N, M)
    """
    return scores * rerank_factor(scores.amax(dim=0, keepdim=True))


def rerank_for_images(scores: Tensor) -> Tensor:
    """Return scores for image retrieval normalized by each image's best caption, thesis eq. (3.12).

    An image whose best score is below ``LEAST`` keeps its scores, see ``rerank_for_captions``.

    Shape:
        (N images, M captions) -> (N, M)
    """
    return rerank_for_captions(scores.T).T


def rerank_factor(best: Tensor) -> Tensor:
    """Return the factor of a candidate's scores, given its best one: S + S / best is S (1 + 1 /
    best)."""
    return torch.where(best >= LEAST, 1 + 1 / best, torch.ones_like(best))
