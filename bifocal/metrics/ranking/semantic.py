"""Semantic image retrieval with graded relevance: Gordo and Larlus, CVPR 2017, sections 3, 4 and
6."""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

MAX_QUERIES = 1000


def semantic_curves(
    scores: Tensor, relevance: Tensor, queries: Tensor, rs: Iterable[int]
) -> tuple[dict[int, float], dict[int, float]]:
    """Return NDCG@R and PCC@R by R, means over the queries; a query is removed from its own
    answers.

    NDCG@R is the DCG of the first R answers over the best possible DCG, with gain rel / log2(rank +
    1) and ranks from
    1. Tied answers share their mean relevance, which gives the expectation over all of their
       orders, as scikit-learn's
    ``ndcg_score`` does. PCC@R is Pearson's correlation of score and relevance over the first R
    answers. If a tie crosses rank R, it is the mean of the PCC with the most and with the least
    relevant of the tied answers.

    Args:
        scores: of the queries against all images.
        relevance: of all images to the queries, at least 0, such as the dot product of tf-idf
            vectors.
        queries: row of each query among the images.
        rs: values of R.

    Shape:
        scores (Q, N), relevance (Q, N), queries (Q,)

    Returns:
        NDCG in [0, 1] and PCC in [-1, 1]. Queries whose relevances are all 0 have NDCG 0; queries
        whose scores or relevances do not vary have PCC 0.

    Raises:
        ValueError: shapes differ, a value is NaN, a relevance is negative, or an R is not in 1 to N
            - 1.

    Example:
        >>> scores, relevance = torch.tensor([[9.0, 0.9, 0.8]]), torch.tensor([[9.0, 1.0, 0.0]])
        >>> semantic_curves(scores, relevance, torch.tensor([0]), [1, 2])
        ({1: 1.0, 2: 1.0}, {1: 0.0, 2: 1.0})
    """
    rs = sorted(set(rs))
    _check(scores, relevance, queries, rs)
    is_query = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, queries.unsqueeze(1), True)
    answers = (~is_query).nonzero()[:, 1].view(len(scores), -1)
    scores, relevance = (values.double().gather(1, answers) for values in (scores, relevance))
    best = _discounted(relevance.sort(dim=1, descending=True).values)
    optimistic, pessimistic = (_order(scores, sign * relevance) for sign in (1, -1))
    dcg = _discounted(_mean_of_ties(scores.gather(1, optimistic), relevance.gather(1, optimistic)))
    ndcg, pcc = {}, {}
    for r in rs:
        ndcg[r] = float((dcg[:, r - 1] / best[:, r - 1]).nan_to_num(0.0).mean())
        first = [order[:, :r] for order in (optimistic, pessimistic)]
        values = [
            float(_pearson(scores.gather(1, rows), relevance.gather(1, rows)).mean())
            for rows in first
        ]
        pcc[r] = sum(values) / 2
    return ndcg, pcc


def area_under(curve: dict[int, float]) -> float:
    """Return the area under a curve over R divided by its width, by trapezoids.

    Example:
        >>> area_under({1: 0.0, 3: 1.0, 5: 1.0})
        0.75
    """
    rs = sorted(curve)
    if len(rs) == 1:
        return curve[rs[0]]
    return sum((b - a) * (curve[a] + curve[b]) / 2 for a, b in pairwise(rs)) / (rs[-1] - rs[0])


def choose_queries(images: int, seed: int, count: int = MAX_QUERIES) -> Tensor:
    """Return sorted random rows of ``images`` images; all of them if there are at most
    ``count``."""
    drawn = torch.randperm(images, generator=torch.Generator().manual_seed(seed))[:count]
    return drawn.sort().values


def triplet_agreement(prefers_first: Tensor, prefers_second: Tensor, votes: Tensor) -> float:
    """Return the agreement, in percent, with people who chose the image of two that is more similar
    to a query.

    Section 4 of the paper. The agreement of one triplet is the number of people who chose the
    method's image over the number of all people: o_i / (o1 + o2) * (o1 + o2) / (o1 + o2 + o3). The
    result is the mean over the triplets in which somebody chose an image. Equal scores count half
    for either image.

    Args:
        prefers_first, prefers_second: the method's similarity of the query to the two images.
        votes: o1, o2, o3: number of people who chose the first, the second, neither.

    Shape:
        prefers_first (T,), prefers_second (T,), votes (T, 3)

    Raises:
        ValueError: a score is NaN, or nobody chose an image in any triplet.
    """
    if prefers_first.isnan().any() or prefers_second.isnan().any():
        raise ValueError("a score of a triplet is NaN")
    votes = votes.double()
    decided = votes[:, :2].sum(dim=1) > 0
    if not decided.any():
        raise ValueError(f"nobody chose one of the two images in any of {len(votes)} triplets")
    first = torch.where(
        prefers_first == prefers_second, 0.5, (prefers_first > prefers_second).double()
    )
    agreed = first * votes[:, 0] + (1 - first) * votes[:, 1]
    return 100 * float((agreed / votes.sum(dim=1))[decided].mean())


def inter_user_agreement(triplet: Tensor, user: Tensor, choice: Tensor) -> tuple[float, float]:
    """Return the agreement of each person with all others, in percent: mean and standard deviation
    over the people.

    Section 3 of the paper: s = w (o_i - 1) / (o1 + o2 - 1) with w = (o1 + o2 - 1) / (o1 + o2 + o3 -
    1), that is, the number of other people who made the person's choice over the number of all
    other people. A person's agreement is the mean over the triplets in which the person and
    somebody else chose one of the images.

    Args:
        triplet, user: number of the triplet and of the person of each decision.
        choice: 0 for the first image, 1 for the second, 2 for neither.

    Shape:
        triplet (D,), user (D,), choice (D,)

    Raises:
        ValueError: no two people chose an image of one triplet.

    Example:
        >>> triplet, user = torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2])
        >>> inter_user_agreement(triplet, user, choice=torch.tensor([0, 0, 1]))[0]  # 1/2, 1/2 and 0
        33.33333333333333
    """
    votes = torch.zeros(int(triplet.max()) + 1 if len(triplet) else 0, 3, dtype=torch.float64)
    votes.index_put_(
        (triplet, choice), torch.ones(len(choice), dtype=torch.float64), accumulate=True
    )
    counted = (choice < 2) & (votes[triplet, :2].sum(dim=1) > 1)
    if not counted.any():
        raise ValueError(f"no two people chose an image of one triplet in {len(choice)} decisions")
    rows, users = votes[triplet[counted]], user[counted]
    scores = (rows.gather(1, choice[counted].unsqueeze(1)).squeeze(1) - 1) / (rows.sum(dim=1) - 1)
    people = users.unique()
    agreement = torch.stack([scores[users == person].mean() for person in people])
    return 100 * float(agreement.mean()), 100 * float(agreement.std(correction=0))


def match_kernel(similarities: Tensor) -> float:
    """Return K(X, Y), section 4: a caption's best similarity in the other image, mean over all
    captions.

    Args:
        similarities: M(x, y) of each caption of one image with each of the other.

    Shape:
        (X, Y), both at least 1

    Example:
        >>> match_kernel(torch.tensor([[1.0, 0.0], [0.5, 0.0]]))
        0.625
    """
    total = similarities.amax(dim=1).sum() + similarities.amax(dim=0).sum()
    return float(total) / sum(similarities.shape)


def _discounted(gains: Tensor) -> Tensor:
    ranks = torch.arange(2, gains.shape[1] + 2, dtype=gains.dtype)
    return (gains / ranks.log2()).cumsum(dim=1)


def _order(scores: Tensor, second: Tensor) -> Tensor:
    """Return columns by descending score; equal scores by descending ``second``."""
    by_second = second.argsort(dim=1, descending=True, stable=True)
    by_score = scores.gather(1, by_second).argsort(dim=1, descending=True, stable=True)
    return by_second.gather(1, by_score)


def _mean_of_ties(scores: Tensor, values: Tensor) -> Tensor:
    """Replace each value by the mean over the entries of its row with the same score; scores are
    sorted."""
    starts = torch.ones_like(scores, dtype=torch.int64)
    starts[:, 1:] = (scores[:, 1:] != scores[:, :-1]).long()
    group = starts.cumsum(dim=1) - 1
    totals = torch.zeros_like(values).scatter_add_(1, group, values)
    counts = torch.zeros_like(values).scatter_add_(1, group, torch.ones_like(values))
    return (totals / counts.clamp(min=1)).gather(1, group)


def _pearson(first: Tensor, second: Tensor) -> Tensor:
    centered = [values - values.mean(dim=1, keepdim=True) for values in (first, second)]
    norm = centered[0].norm(dim=1) * centered[1].norm(dim=1)
    return torch.where(
        norm > 0, (centered[0] * centered[1]).sum(dim=1) / norm.clamp(min=1e-300), 0.0
    )


def _check(scores: Tensor, relevance: Tensor, queries: Tensor, rs: list[int]) -> None:
    if scores.shape != relevance.shape or queries.shape != scores.shape[:1]:
        raise ValueError(
            f"scores {tuple(scores.shape)}, relevance {tuple(relevance.shape)} and queries "
            f"{tuple(queries.shape)} differ: expected (Q, N), (Q, N) and (Q,)"
        )
    if scores.isnan().any() or relevance.isnan().any() or (relevance < 0).any():
        raise ValueError("a score or a relevance is NaN, or a relevance is negative")
    if not rs or rs[0] < 1 or rs[-1] > scores.shape[1] - 1:
        raise ValueError(
            f"R is {rs}: {scores.shape[1]} images, less the query, give 1 to "
            f"{scores.shape[1] - 1} answers"
        )
