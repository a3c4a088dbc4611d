"""Cross-modal retrieval: R@K, median and mean rank, re-ranking.

Tied candidates have no order. Their rule here: as if each order among them were equally likely, so R@K of a query is
the probability that a correct candidate is among the first K, and its rank the expected one. The result depends
neither on a sorting algorithm nor on the order of rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 512
"""Queries at a time: a block of scores against 25,000 candidates takes 50 MB."""


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

    def recall(self, k: int) -> float:
        """R@K in [0, 1]: the share of queries with a correct candidate among the first ``k``."""
        if k < 1:
            raise ValueError(f"R@K needs K of at least 1, got {k}")
        places = (k - self.above).clamp(min=0)
        # All correct ones come after the first `places` of the tie, drawn without replacement, with
        # probability C(tied, places) / C(tied + correct, places).
        drawn = torch.minimum(places, self.tied)
        miss = torch.exp(_log_choose(self.tied, drawn) - _log_choose(self.tied + self.correct, drawn))
        return float(torch.where(places > self.tied, 1.0, 1.0 - miss).mean())

    def expected(self) -> Tensor:
        """(Q,) float64, the expected rank, from 0."""
        return self.above + self.tied / (self.correct + 1).double()

    def median(self) -> float:
        """The median rank, from 1."""
        return float(self.expected().quantile(0.5)) + 1.0

    def mean(self) -> float:
        """The mean rank, from 1."""
        return float(self.expected().mean()) + 1.0


def ranks(scores: Tensor, matches: Tensor) -> Ranks:
    """Ranks of the best correct candidate of each row.

    Shape:
        scores (Q, C), matches (Q, C) bool.

    Raises:
        ValueError: a score is NaN, or a query has no correct candidate.
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


def retrieval_ranks(
    images: Tensor, captions: Tensor, image_of_caption: Tensor, *, rerank: bool = False
) -> tuple[Ranks, Ranks]:
    """Ranks of caption retrieval (one query per image) and of image retrieval (one per caption).

    Blocks of queries are multiplied and counted; the matrix of all scores never stands in memory.

    Args:
        image_of_caption: row in ``images`` of each caption's image.
        rerank: normalise the scores by thesis eq. (3.12)-(3.13).

    Shape:
        images (N, d), captions (M, d), image_of_caption (M,) int64.
    """
    image_index = torch.arange(len(images))
    gallery_captions, gallery_images = captions, images
    if rerank:
        # S[i, j] + S[i, j] / max S[:, j] is S[i, j] times a factor of candidate j alone: scale the candidates.
        gallery_captions = captions * _rerank_factor(captions, images)
        gallery_images = images * _rerank_factor(images, captions)
    return (
        _join(
            ranks(images[rows] @ gallery_captions.T, image_of_caption == image_index[rows].unsqueeze(1))
            for rows in _blocks(len(images))
        ),
        _join(
            ranks(captions[rows] @ gallery_images.T, image_index == image_of_caption[rows].unsqueeze(1))
            for rows in _blocks(len(captions))
        ),
    )


def summarize(both: tuple[Ranks, Ranks], ks: Iterable[int]) -> dict[str, dict[str, float]]:
    """R@K in percent, median and mean rank from 1, of what ``retrieval_ranks`` found.

    Returns:
        ``{"caption_retrieval": {"R@1": ..., "median_rank": ..., "mean_rank": ...}, "image_retrieval": {...}}``
    """
    ks = list(ks)
    return {
        direction: {f"R@{k}": 100 * found.recall(k) for k in ks}
        | {"median_rank": found.median(), "mean_rank": found.mean()}
        for direction, found in zip(("caption_retrieval", "image_retrieval"), both, strict=True)
    }


def chance_report(image_of_caption: Tensor, ks: Iterable[int]) -> dict[str, dict[str, float]]:
    """What random scores would give, in expectation: every candidate is tied.

    Shape:
        image_of_caption (M,) int64, each of N images at least once.
    """
    captions = image_of_caption.bincount()
    one = torch.ones_like(image_of_caption)
    return summarize(
        (
            Ranks(above=0 * captions, tied=len(image_of_caption) - captions, correct=captions),
            Ranks(above=0 * one, tied=(len(captions) - 1) * one, correct=one),
        ),
        ks,
    )


def rerank_for_captions(scores: Tensor) -> Tensor:
    """Scores for caption retrieval normalised by each caption's best image, thesis eq. (3.13).

    A caption whose best score is not positive keeps its scores: the ratio would turn its order around.

    Shape:
        (N images, M captions) -> the same.
    """
    return scores * _factor(scores.amax(dim=0, keepdim=True))


def rerank_for_images(scores: Tensor) -> Tensor:
    """Scores for image retrieval normalised by each image's best caption, thesis eq. (3.12); as above."""
    return rerank_for_captions(scores.T).T


def _factor(best: Tensor) -> Tensor:
    return torch.where(best > 0, 1 + 1 / best, torch.ones_like(best))


def _rerank_factor(candidates: Tensor, queries: Tensor) -> Tensor:
    best = torch.cat([(candidates[rows] @ queries.T).amax(dim=1, keepdim=True) for rows in _blocks(len(candidates))])
    return _factor(best)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, count, BLOCK))


def _join(blocks: Iterable[Ranks]) -> Ranks:
    above, tied, correct = zip(*((block.above, block.tied, block.correct) for block in blocks), strict=True)
    return Ranks(torch.cat(above), torch.cat(tied), torch.cat(correct))


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    n, k = n.double(), k.double()
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
