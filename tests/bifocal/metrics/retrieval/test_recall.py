"""Retrieval metrics: enumeration of all orders and sorted lists as references."""

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bifocal.metrics import (
    chance_report,
    ranks,
    recall_sum_gain,
    rerank_for_captions,
    rerank_for_images,
    retrieval_intervals,
    retrieval_ranks,
    score_ranks,
    summarize,
)
from bifocal.metrics.retrieval.ranks import LEAST
from tests.bifocal.metrics.retrieval.worked import IMAGE_OF_CAPTION, SCORES, blocks


def collection(
    seed: int, images: int, captions: int, dim: int = 5
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image_of_caption = torch.cat(
        [torch.arange(images), torch.randint(images, (captions - images,), generator=generator)]
    )
    vectors = torch.randn(images + captions, dim, generator=generator, dtype=torch.float64)
    vectors /= vectors.norm(dim=1, keepdim=True)
    return vectors[:images], vectors[images:], image_of_caption


def sorted_ranks(scores: np.ndarray, matches: np.ndarray) -> list[int]:
    """Rank from 0 of the first correct candidate in a sorted list; for scores without ties."""
    lists = (
        sorted(zip(-row, ~right, strict=True)) for row, right in zip(scores, matches, strict=True)
    )
    return [
        next(rank for rank, (_, wrong) in enumerate(candidates) if not wrong)
        for candidates in lists
    ]


@given(seed=st.integers(0, 2**32 - 1), images=st.integers(1, 7), more=st.integers(0, 9))
def test_ranks_equal_positions_in_sorted_list(seed: int, images: int, more: int) -> None:
    x, v, image_of_caption = collection(seed, images, images + more)
    scores = (x @ v.T).numpy()
    matches = np.arange(images)[:, None] == image_of_caption.numpy()
    ranked = retrieval_ranks(x, v, image_of_caption)
    for direction, expected in zip(
        ranked, (sorted_ranks(scores, matches), sorted_ranks(scores.T, matches.T)), strict=True
    ):
        assert direction.expected().tolist() == expected
        assert direction.median() == np.median(expected) + 1
        assert direction.mean() == pytest.approx(np.mean(expected) + 1)
        for k in (1, 2, 5, 100):
            assert direction.recall(k) == pytest.approx(np.mean([rank < k for rank in expected]))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6).filter(
        lambda c: any(r for _, r in c)
    )
)
def test_ties_count_as_mean_over_all_orders(candidates: list[tuple[int, bool]]) -> None:
    scores, right = (torch.tensor([column]) for column in zip(*candidates, strict=True))
    ranked = ranks(scores.double(), right)
    orders = [
        sorted(order, key=lambda candidate: -candidate[0]) for order in permutations(candidates)
    ]
    first = [next(rank for rank, (_, correct) in enumerate(order) if correct) for order in orders]
    assert ranked.expected().item() == pytest.approx(math.fsum(first) / len(first))
    for k in range(1, 8):
        assert ranked.recall(k) == pytest.approx(sum(rank < k for rank in first) / len(first))


def test_equal_scores_give_chance_level() -> None:
    _, _, image_of_caption = collection(0, 6, 20)
    one = torch.ones(6, 3), torch.ones(20, 3)
    assert summarize(retrieval_ranks(*one, image_of_caption), (1, 5)) == chance_report(
        image_of_caption, (1, 5)
    )
    # Image retrieval among 6 equal images: R@1 is 1/6, R@5 is 5/6, the mean rank is (1 + ... + 6) /
    # 6.
    chance = chance_report(image_of_caption, (1, 5))["image_retrieval"]
    assert chance == pytest.approx(
        {"R@1": 100 / 6, "R@5": 500 / 6, "median_rank": 3.5, "mean_rank": 3.5}
    )


@pytest.mark.parametrize("images", [250, 1000, 5000])
def test_chance_report_is_exact_to_double_precision(images: int) -> None:
    """One correct image of N: K / N. Five correct captions of M: 1 - C(M - 5, K) / C(M, K), in
    fractions."""
    chance = chance_report(torch.arange(images).repeat_interleave(5), (1, 5, 10))
    for k in (1, 5, 10):
        assert chance["image_retrieval"][f"R@{k}"] == pytest.approx(
            100 * k / images, rel=1e-15, abs=0
        )
        missed = Fraction(math.comb(5 * images - 5, k), math.comb(5 * images, k))
        assert chance["caption_retrieval"][f"R@{k}"] == pytest.approx(
            float(100 * (1 - missed)), rel=1e-14, abs=0
        )


@given(seed=st.integers(0, 2**32 - 1), rerank=st.booleans())
def test_metrics_are_invariant_to_order_of_rows(seed: int, rerank: bool) -> None:
    x, v, image_of_caption = collection(seed, 5, 12)
    generator = torch.Generator().manual_seed(seed)
    images, captions = (
        torch.randperm(5, generator=generator),
        torch.randperm(12, generator=generator),
    )
    position = images.argsort()
    original = summarize(retrieval_ranks(x, v, image_of_caption, rerank=rerank), (1, 3))
    moved = retrieval_ranks(
        x[images], v[captions], position[image_of_caption[captions]], rerank=rerank
    )
    for direction, metrics in summarize(moved, (1, 3)).items():
        assert metrics == pytest.approx(original[direction])


@given(seed=st.integers(0, 2**32 - 1))
def test_reranking_equals_equations_3_12_and_3_13(seed: int) -> None:
    x, v, image_of_caption = collection(seed, 4, 9)
    scores = (x @ v.T).tolist()
    matches = torch.arange(4).unsqueeze(1) == image_of_caption
    for_captions = torch.tensor(
        [
            [
                s + s / best if (best := max(row[j] for row in scores)) >= LEAST else s
                for j, s in enumerate(r)
            ]
            for r in scores
        ],
        dtype=torch.float64,
    )
    for_images = torch.tensor(
        [[s + s / max(r) if max(r) >= LEAST else s for s in r] for r in scores],
        dtype=torch.float64,
    )
    torch.testing.assert_close(rerank_for_captions(x @ v.T), for_captions)
    torch.testing.assert_close(rerank_for_images(x @ v.T), for_images)
    caption_ranks, image_ranks = retrieval_ranks(x, v, image_of_caption, rerank=True)
    assert torch.equal(caption_ranks.better, ranks(for_captions, matches).better)
    assert torch.equal(image_ranks.better, ranks(for_images.T, matches.T).better)


def test_metrics_are_independent_of_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    x, v, image_of_caption = collection(3, 11, 40)
    whole = summarize(retrieval_ranks(x, v, image_of_caption, rerank=True), (1, 2))
    monkeypatch.setattr("bifocal.metrics.retrieval.blockwise_ranks.IMAGES", 3)
    monkeypatch.setattr("bifocal.metrics.retrieval.blockwise_ranks.CAPTIONS", 5)
    assert summarize(retrieval_ranks(x, v, image_of_caption, rerank=True), (1, 2)) == whole


def test_invalid_input_is_rejected() -> None:
    right = torch.eye(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="NaN in 1 of 2 queries"):
        ranks(torch.tensor([[0.0, float("nan")], [0.0, 1.0]]), right)
    with pytest.raises(ValueError, match="1 of 2 queries have no correct candidate"):
        ranks(torch.zeros(2, 2), torch.tensor([[True, False], [False, False]]))
    with pytest.raises(ValueError, match="K of at least 1"):
        ranks(torch.zeros(2, 2), right).recall(0)


def test_retrieval_intervals_equal_percentiles_over_resampled_images() -> None:
    ranked = score_ranks(blocks(SCORES), IMAGE_OF_CAPTION, images=5)
    resamples = 200
    report = retrieval_intervals(ranked, IMAGE_OF_CAPTION, (1, 2), resamples=resamples, seed=4)
    drawn = torch.randint(5, (resamples, 5), generator=torch.Generator().manual_seed(4)).tolist()
    expected: dict[str, list[float]] = {"R@2": [], "median_rank": [], "mean_rank": [], "sum": []}
    values, hits = ranked[1].expected().tolist(), [ranked[one].hits(2).tolist() for one in (0, 1)]
    ones = [ranked[one].hits(1).tolist() for one in (0, 1)]
    for row in drawn:
        queries = [caption for image in row for caption in (2 * image, 2 * image + 1)]
        expected["R@2"].append(100 * np.mean([hits[1][query] for query in queries]))
        expected["median_rank"].append(np.median([values[query] for query in queries]) + 1)
        expected["mean_rank"].append(np.mean([values[query] for query in queries]) + 1)
        both = [np.mean([column[0][image] for image in row]) for column in (ones, hits)]
        both += [np.mean([column[1][query] for query in queries]) for column in (ones, hits)]
        expected["sum"].append(100 * sum(both))
    for name in ("R@2", "median_rank", "mean_rank"):
        low, high = np.quantile(expected[name], [0.025, 0.975])
        assert report["image_retrieval"][name] == pytest.approx({"low": low, "high": high})
    low, high = np.quantile(expected["sum"], [0.025, 0.975])
    assert report["recall_sum"]["total"] == pytest.approx({"low": low, "high": high})


def test_gain_in_the_recall_sum_equals_percentiles_over_resampled_images() -> None:
    first, second = (
        [part.expected() for part in score_ranks(blocks(scores), IMAGE_OF_CAPTION, images=5)]
        for scores in (SCORES, SCORES.flip(1))
    )
    low, high = recall_sum_gain(first, second, IMAGE_OF_CAPTION, (1, 2), resamples=200, seed=4)
    drawn, gains = (
        torch.randint(5, (200, 5), generator=torch.Generator().manual_seed(4)).tolist(),
        [],
    )
    for row in drawn:
        queries = (row, [caption for image in row for caption in (2 * image, 2 * image + 1)])
        means = [
            np.mean([(ranks[one][query].item() < k) for query in queries[one]])
            for ranks in (first, second)
            for one in (0, 1)
            for k in (1, 2)
        ]
        gains.append(100 * (sum(means[:4]) - sum(means[4:])))
    assert (low, high) == pytest.approx(tuple(np.quantile(gains, [0.025, 0.975])))
