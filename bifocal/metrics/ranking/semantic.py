"""Semantic image retrieval: how well the ranking of images agrees with what they mean.

Gordo and Larlus, "Beyond instance-level image retrieval: leveraging captions to learn a global visual representation
for semantic retrieval", CVPR 2017, sections 3, 4 and 6.
"""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

QUERIES = 1000


def semantic_curves(
    scores: Tensor, relevance: Tensor, queries: Tensor, rs: Iterable[int]
) -> tuple[dict[int, float], dict[int, float]]:
    """NDCG@R and PCC@R of each R, the means over the queries; the query itself is removed from its results.

    NDCG@R is DCG over the best possible DCG of the first R, with the gain rel / log2(place + 1), places from 1. PCC@R
    is Pearson's correlation of score and relevance over the first R results. Results whose scores are equal are
    ordered by relevance, once best first and once worst first, and the two figures averaged: no order of the rows
    decides.

    Args:
        scores: of the queries against all images.
        relevance: the dot product of their captions' tf-idf vectors, at least 0; as above.
        queries: row of each query among the images.

    Shape:
        scores (Q, N), relevance (Q, N), queries (Q,)

    Returns:
        In [0, 1] and [-1, 1]. A query whose relevances are all 0 has NDCG 0; one without spread has PCC 0.

    Raises:
        ValueError: shapes differ, a number is NaN, a relevance is negative, or an R has not 1 to N - 1 results.
    """
    rs = sorted(set(rs))
    _check(scores, relevance, queries, rs)
    own = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, queries.unsqueeze(1), True)
    others = (~own).nonzero()[:, 1].view(len(scores), -1)
    scores, relevance = (values.double().gather(1, others) for values in (scores, relevance))
    best = _discounted(relevance.sort(dim=1, descending=True).values)
    totals: tuple[dict[int, float], dict[int, float]] = ({}, {})
    orders = [_order(scores, sign * relevance) for sign in (1, -1)]
    for r in rs:
        ndcg, pcc = [], []
        for order in orders:
            gained = relevance.gather(1, order)
            ndcg.append((_discounted(gained)[:, r - 1] / best[:, r - 1]).nan_to_num(0.0).mean())
            pcc.append(_pearson(scores.gather(1, order)[:, :r], gained[:, :r]).mean())
        totals[0][r], totals[1][r] = (float(sum(values) / 2) for values in (ndcg, pcc))
    return totals


def area_under(curve: dict[int, float]) -> float:
    """The area under a curve over R, divided by its width: a mean height, by trapezoids."""
    rs = sorted(curve)
    if len(rs) == 1:
        return curve[rs[0]]
    return sum((b - a) * (curve[a] + curve[b]) / 2 for a, b in pairwise(rs)) / (rs[-1] - rs[0])


def choose_queries(images: int, seed: int, count: int = QUERIES) -> Tensor:
    """Rows of the query images, drawn from the split; all of them if there are no more than ``count``."""
    drawn = torch.randperm(images, generator=torch.Generator().manual_seed(seed))[:count]
    return drawn.sort().values


def triplet_agreement(prefers_first: Tensor, prefers_second: Tensor, votes: Tensor) -> float:
    """Agreement with people who chose which of two images is more like a query, in percent; section 4.

    Of a triplet: the share of those who chose one of the two that chose the method's, times the share of all that chose
    one, o_i / (o1 + o2) * (o1 + o2) / (o1 + o2 + o3). Its mean over the triplets where somebody chose one. Equal scores
    agree with half of either side.

    Args:
        prefers_first, prefers_second: the method's scores of the query with the two images.
        votes: o1, o2, o3: how many chose the first, the second, neither.

    Shape:
        prefers_first (T,), prefers_second (T,), votes (T, 3)

    Raises:
        ValueError: a score is NaN, or nobody chose anything.
    """
    if prefers_first.isnan().any() or prefers_second.isnan().any():
        raise ValueError("a score of a triplet is NaN")
    votes = votes.double()
    decided = votes[:, :2].sum(dim=1) > 0
    if not decided.any():
        raise ValueError(f"nobody chose one of the two images in any of {len(votes)} triplets")
    first = torch.where(prefers_first == prefers_second, 0.5, (prefers_first > prefers_second).double())
    agreed = first * votes[:, 0] + (1 - first) * votes[:, 1]
    return 100 * float((agreed / votes.sum(dim=1))[decided].mean())


def match_kernel(similarities: Tensor) -> float:
    """K(X, Y) of section 4: every caption of either image with its best partner in the other.

    Args:
        similarities: M(x, y) of each caption of the one with each of the other.

    Shape:
        (X, Y), both at least 1

    Example:
        >>> match_kernel(torch.tensor([[1.0, 0.0], [0.5, 0.0]]))
        0.625
    """
    total = similarities.amax(dim=1).sum() + similarities.amax(dim=0).sum()
    return float(total) / sum(similarities.shape)


def _discounted(gains: Tensor) -> Tensor:
    places = torch.arange(2, gains.shape[1] + 2, dtype=gains.dtype)
    return (gains / places.log2()).cumsum(dim=1)


def _order(scores: Tensor, second: Tensor) -> Tensor:
    """Rows sorted by score, best first, and equal scores by ``second``, best first."""
    by_second = second.argsort(dim=1, descending=True, stable=True)
    by_score = scores.gather(1, by_second).argsort(dim=1, descending=True, stable=True)
    return by_second.gather(1, by_score)


def _pearson(first: Tensor, second: Tensor) -> Tensor:
    centred = [values - values.mean(dim=1, keepdim=True) for values in (first, second)]
    norm = centred[0].norm(dim=1) * centred[1].norm(dim=1)
    return torch.where(norm > 0, (centred[0] * centred[1]).sum(dim=1) / norm.clamp(min=1e-300), 0.0)


def _check(scores: Tensor, relevance: Tensor, queries: Tensor, rs: list[int]) -> None:
    if scores.shape != relevance.shape or queries.shape != scores.shape[:1]:
        raise ValueError(
            f"scores {tuple(scores.shape)}, relevance {tuple(relevance.shape)} and queries {tuple(queries.shape)} "
            "differ: expected (Q, N), (Q, N) and (Q,)"
        )
    if scores.isnan().any() or relevance.isnan().any() or (relevance < 0).any():
        raise ValueError("a score or a relevance is NaN, or a relevance is negative")
    if not rs or rs[0] < 1 or rs[-1] > scores.shape[1] - 1:
        raise ValueError(
            f"R is {rs}: {scores.shape[1]} images, less the query, give 1 to {scores.shape[1] - 1} results"
        )
