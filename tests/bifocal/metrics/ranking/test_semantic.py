"""Semantic retrieval against loops, scikit-learn and worked cases."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from bifocal.metrics import (
    area_under,
    choose_queries,
    inter_user_agreement,
    match_kernel,
    semantic_curves,
    triplet_agreement,
)


def test_semantic_curves_of_worked_case() -> None:
    """By hand, one query, image 0, and R = 2.

    Scores of images 1 to 4: 0.9, 0.8, 0.1, 0.0; relevances 1, 3, 2, 0. DCG@2 = 1 / log2(2) + 3 /
    log2(3) = 2.8928; the best, 3 then 2: 3 + 2 / log2(3) = 4.2619. NDCG@2 = 0.6788. PCC@2 of (0.9,
    0.8) and (1, 3) is -1.
    """
    scores, relevance = (
        torch.tensor([[9.0, 0.9, 0.8, 0.1, 0.0]]),
        torch.tensor([[9.0, 1.0, 3.0, 2.0, 0.0]]),
    )
    ndcg, pcc = semantic_curves(scores, relevance, torch.tensor([0]), [2])
    assert ndcg[2] == pytest.approx((1 + 3 / math.log2(3)) / (3 + 2 / math.log2(3)))
    assert ndcg[2] == pytest.approx(0.6788, abs=1e-4)
    assert pcc[2] == pytest.approx(-1.0)


def slow_curves(
    scores: np.ndarray, relevance: np.ndarray, queries: list[int], r: int
) -> tuple[float, float]:
    ndcgs, pccs = [], []
    for row, query in enumerate(queries):
        others = [image for image in range(scores.shape[1]) if image != query]
        top = sorted(others, key=lambda image: -scores[row, image])[:r]
        best = sorted((relevance[row, image] for image in others), reverse=True)[:r]
        gains = [relevance[row, image] for image in top]
        dcg, ideal = (
            sum(gain / math.log2(rank + 2) for rank, gain in enumerate(column))
            for column in (gains, best)
        )
        ndcgs.append(dcg / ideal)
        pccs.append(np.corrcoef([scores[row, image] for image in top], gains)[0, 1])
    return float(np.mean(ndcgs)), float(np.mean(pccs))


@given(seed=st.integers(0, 2**32 - 1), shift=st.floats(-3, 3))
def test_semantic_curves_equal_loops_and_are_invariant_to_order_and_shift(
    seed: int, shift: float
) -> None:
    random = np.random.default_rng(seed)
    scores, relevance = random.normal(size=(3, 8)), random.random((3, 8))
    queries = [1, 4, 6]
    values = semantic_curves(
        torch.tensor(scores), torch.tensor(relevance), torch.tensor(queries), [3, 5]
    )
    for r in (3, 5):
        expected = slow_curves(scores, relevance, queries, r)
        assert (values[0][r], values[1][r]) == pytest.approx(expected)
    order = random.permutation(8)
    moved = torch.tensor([int(np.flatnonzero(order == query)[0]) for query in queries])
    again = semantic_curves(
        torch.tensor(scores[:, order] + shift), torch.tensor(relevance[:, order]), moved, [3, 5]
    )
    assert again[0] == pytest.approx(values[0])
    assert again[1] == pytest.approx(values[1], abs=1e-6)


@given(seed=st.integers(0, 2**32 - 1), levels=st.integers(1, 4))
def test_ndcg_with_ties_equals_scikit_learn(seed: int, levels: int) -> None:
    random = np.random.default_rng(seed)
    scores, relevance = random.integers(0, levels, size=(4, 9)).astype(float), random.random((4, 9))
    queries = random.permutation(9)[:4]
    ndcg, _ = semantic_curves(
        torch.tensor(scores), torch.tensor(relevance), torch.tensor(queries), range(1, 9)
    )
    for r, value in ndcg.items():
        expected = [
            ndcg_score([np.delete(gains, query)], [np.delete(row, query)], k=r, ignore_ties=False)
            for row, gains, query in zip(scores, relevance, queries, strict=True)
        ]
        assert value == pytest.approx(np.mean(expected))


def test_ndcg_with_ties_is_mean_over_their_orders() -> None:
    """Answers with relevance 3, 0, 1, the last two tied, R = 2: 3 + 0 or 3 + 1 / log2(3), over 3 +
    1 / log2(3)."""
    scores, relevance = torch.tensor([[0.0, 5.0, 2.0, 2.0]]), torch.tensor([[9.0, 3.0, 0.0, 1.0]])
    ndcg, _ = semantic_curves(scores, relevance, torch.tensor([0]), [2])
    best = 3 + 1 / math.log2(3)
    assert ndcg[2] == pytest.approx((3 / best + 1) / 2)


def test_semantic_curves_of_equal_scores_and_of_invalid_input() -> None:
    ndcg, pcc = semantic_curves(
        torch.zeros(1, 3), torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([0]), [1]
    )
    assert (ndcg[1], pcc[1]) == (0.5, 0.0)
    with pytest.raises(ValueError, match="3 images, less the query, give 1 to 2 answers"):
        semantic_curves(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0]), [3])
    with pytest.raises(ValueError, match="is NaN"):
        semantic_curves(torch.full((1, 3), torch.nan), torch.zeros(1, 3), torch.tensor([0]), [1])


def test_area_under_choose_queries_and_match_kernel() -> None:
    assert area_under({1: 0.0, 3: 1.0, 5: 1.0}) == pytest.approx(0.75)
    queries = choose_queries(50, seed=0, count=7)
    assert len(set(queries.tolist())) == 7
    assert torch.equal(queries, choose_queries(50, seed=0, count=7))
    # (max of rows 0.9, 0.2; max of columns 0.9, 0.3, 0.1) / (2 + 3)
    assert match_kernel(torch.tensor([[0.9, 0.3, 0.0], [0.2, 0.0, 0.1]])) == pytest.approx(2.4 / 5)


def test_triplet_agreement_of_worked_case() -> None:
    """o1 o2 o3 and the choice: 4 1 0, first: 4/5. 1 3 1, first: 1/5. 0 0 5: nobody chose. 2 0 2,
    second: 0/4. 1 1 0, tied: 1/2. The mean of four: (0.8 + 0.2 + 0 + 0.5) / 4 = 37.5 %."""
    votes = torch.tensor([[4, 1, 0], [1, 3, 1], [0, 0, 5], [2, 0, 2], [1, 1, 0]])
    first, second = torch.tensor([2.0, 2.0, 2.0, 0.0, 1.0]), torch.ones(5)
    assert triplet_agreement(first, second, votes) == pytest.approx(37.5)
    with pytest.raises(ValueError, match="nobody chose"):
        triplet_agreement(first[2:3], second[2:3], votes[2:3])


def test_triplets_reject_nan() -> None:
    with pytest.raises(ValueError, match="triplet is NaN"):
        triplet_agreement(torch.tensor([torch.nan]), torch.ones(1), torch.ones(1, 3))


@given(seed=st.integers(0, 2**32 - 1))
def test_inter_user_agreement_equals_loops_over_section_3(seed: int) -> None:
    random = np.random.default_rng(seed)
    answers = {
        (user, t): int(random.integers(3))
        for user in range(4)
        for t in range(5)
        if random.random() < 0.8
    }
    answers |= {(0, 0): 0, (1, 0): 1}
    scores: dict[int, list[float]] = {}
    for (user, t), choice in answers.items():
        votes = [
            sum(c == kind for (_, other), c in answers.items() if other == t) for kind in range(3)
        ]
        if choice == 2 or votes[0] + votes[1] - 1 < 1:
            continue
        w = (votes[0] + votes[1] - 1) / (sum(votes) - 1)
        scores.setdefault(user, []).append(w * (votes[choice] - 1) / (votes[0] + votes[1] - 1))
    people = [float(np.mean(values)) for values in scores.values()]
    triplet, user, choice = torch.tensor(
        [(t, user, choice) for (user, t), choice in answers.items()]
    ).T
    expected = (100 * np.mean(people), 100 * np.std(people))
    assert inter_user_agreement(triplet, user, choice) == pytest.approx(expected, abs=1e-9)


def test_inter_user_agreement_needs_two_people_who_chose() -> None:
    with pytest.raises(
        ValueError, match="no two people chose an image of one triplet in 2 decisions"
    ):
        inter_user_agreement(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([0, 2]))
