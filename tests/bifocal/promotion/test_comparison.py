"""Paired bootstrap over images: comparison of two models on shared queries."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.metrics.bootstrap import bootstrap_means, mean_interval, percentile_interval
from bifocal.promotion.comparison import (
    Comparison,
    compare_ranks,
    compare_trainings,
    join_queries,
    sample_images,
)
from bifocal.promotion.comparison_files import write_comparison


def ranks(hits: int, images: range, direction: str = "image_retrieval") -> pd.DataFrame:
    names = [str(image) for image in images]
    rank = np.where(np.arange(len(names)) < hits, 0.0, 9.0)
    keys = {
        "direction": direction,
        "query": names,
        "image_id": names,
        "content": names,
        "protocol": "full",
    }
    return pd.DataFrame(keys | {"rank": rank})


def compare(
    current: list[pd.DataFrame], reference: list[pd.DataFrame], ks: list[int]
) -> Comparison | None:
    return compare_ranks({"ours": current}, {"theirs": reference}, ks, resamples=200, seed=0)


def test_compare_ranks_uses_shared_queries_only() -> None:
    found = compare([ranks(30, range(40))], [ranks(10, range(50))], [1])
    assert found is not None
    (row,) = found.differences
    assert (row.name, row.current, row.reference, row.gain, row.sign) == (
        "image_retrieval.R@1",
        75.0,
        25.0,
        50.0,
        1,
    )
    assert row.interval[0] < row.gain < row.interval[1]
    assert (found.images, found.queries, found.seeds) == (40, (40, 50), (1, 1))
    assert found.verdict().startswith("ours finds more than theirs: image R@1 +50.0 (+")
    assert compare([ranks(1, range(5))], [ranks(1, range(10, 15))], [1]) is None


def test_compare_ranks_has_accuracy_for_directions_without_ranking() -> None:
    found = compare([ranks(2, range(8), "pointing")], [ranks(6, range(8), "pointing")], [1, 5])
    assert found is not None
    assert [(row.name, row.gain, row.sign) for row in found.differences] == [
        ("pointing.accuracy", -50.0, -1)
    ]
    assert found.verdict().startswith("ours finds less than theirs: pointing accuracy -50.0")


def test_the_recall_sum_of_both_directions_gives_the_verdict(tmp_path: Path) -> None:
    both = [
        pd.concat([ranks(hits, range(60)), ranks(hits, range(60), "caption_retrieval")])
        for hits in (20, 30, 24, 26)
    ]
    found = compare(both[:2], both[2:], [1, 5])
    assert found is not None
    assert [row.name for row in found.differences][-1] == "recall_sum"
    row = found.differences[-1]
    assert row.gain == pytest.approx(0.0)
    assert row.current == pytest.approx(4 * 100 * 25 / 60)
    assert row.current_interval[0] >= 0.0
    assert (
        "no difference between ours and theirs can be seen with 2 seeds and 60 images: recall sum"
        in found.verdict()
    )
    write_comparison(tmp_path, "ours and theirs", [found], {})
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert found.verdict().replace("+", "&#43;") in page or found.verdict() in page
    assert "<circle" in page


@pytest.mark.parametrize(("seeds", "spread"), [(2, 0.3), (3, 0.0), (3, 0.3), (5, 0.3)])
def test_intervals_hold_a_true_difference_of_zero_in_95_percent(seeds: int, spread: float) -> None:
    """Both models are drawn from one distribution: images and seeds vary, and what they have in
    common."""
    random, held, trials = np.random.default_rng(0), 0, 200
    for _ in range(trials):
        difficulty = random.normal(size=(80, 1)) + random.normal(scale=spread, size=2 * seeds)
        hits = np.where(
            difficulty + random.normal(scale=0.5, size=(80, 2 * seeds)) > 0.3, 100.0, 0.0
        )
        row = compare_trainings("R@1", sample_images(hits, range(80), 300, seed=0), seeds, seed=0)
        held += row.interval[0] <= 0 <= row.interval[1]
    assert held / trials >= 0.95 - 2 * (0.05 * 0.95 / trials) ** 0.5


@given(st.integers(0, 99), st.integers(2, 4))
def test_one_training_of_each_has_the_interval_of_the_images(draw: int, copies: int) -> None:
    """Equal trainings add nothing; other seeds widen the interval."""
    values = np.random.default_rng(draw).choice([0.0, 100.0], size=(30, 2))
    one = compare_trainings("R@1", sample_images(values, range(30), 200, seed=0), 1, seed=0)
    repeated = sample_images(np.repeat(values, copies, axis=1), range(30), 200, seed=0)
    assert compare_trainings("R@1", repeated, copies, seed=0).interval == pytest.approx(
        one.interval
    )
    gains = torch.from_numpy(values[:, :1] - values[:, 1:])
    assert one.interval == pytest.approx(
        percentile_interval(bootstrap_means(gains, torch.ones(30, 1), 200, 0)[:, 0])
    )


def test_join_queries_rejects_repeated_queries() -> None:
    twice = pd.concat([ranks(1, range(3)), ranks(1, range(3))])
    with pytest.raises(pd.errors.MergeError):
        join_queries(twice, ranks(1, range(3)))


def test_join_queries_rejects_unlike_protocols() -> None:
    """The same images in five folds have other candidates: each fold is easier than the whole
    split."""
    full, folds = ranks(5, range(10)), ranks(9, range(10)).assign(protocol="fold")
    with pytest.raises(
        ValueError,
        match="image_retrieval: 10 of 10 common queries were ranked under different prot",
    ):
        join_queries(full, folds)


def test_intervals_resample_images_not_queries() -> None:
    """Two images of 50 equal queries each: a resample has mean 0, 1/2 or 1, so the interval is [0,
    1]."""
    values = np.repeat([0.0, 1.0], 50)
    images = ["a"] * 50 + ["b"] * 50
    assert mean_interval(values, images, resamples=200, seed=0) == (0.0, 1.0)
