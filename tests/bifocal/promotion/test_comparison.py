"""Paired bootstrap over images: comparison of two models on shared queries."""

import numpy as np
import pandas as pd
import pytest

from bifocal.metrics.bootstrap import bootstrap_difference, mean_interval, percentile_interval
from bifocal.promotion.comparison import PairedScores, compare_ranks, image_totals, join_queries


def ranks(hits: int, images: range, direction: str = "image_retrieval") -> pd.DataFrame:
    names = [str(image) for image in images]
    rank = np.where(np.arange(len(names)) < hits, 0.0, 9.0)
    keys = {"direction": direction, "query": names, "image_id": names, "content": names, "protocol": "full"}
    return pd.DataFrame(keys | {"rank": rank})


def test_compare_ranks_uses_shared_queries_only() -> None:
    (row,) = compare_ranks(ranks(30, range(40)), ranks(10, range(50)), [1], resamples=200, seed=0)
    assert (row.name, row.current, row.reference, row.gain, row.sign) == ("image_retrieval.R@1", 75.0, 25.0, 50.0, 1)
    assert row.interval[0] < row.gain < row.interval[1]
    assert compare_ranks(ranks(1, range(5)), ranks(1, range(10, 15)), [1], resamples=200, seed=0) == []


def test_compare_ranks_has_accuracy_for_directions_without_ranking() -> None:
    rows = compare_ranks(ranks(2, range(8), "pointing"), ranks(6, range(8), "pointing"), [1, 5], resamples=200, seed=0)
    assert [(row.name, row.gain, row.sign) for row in rows] == [("pointing.accuracy", -50.0, -1)]


def test_join_queries_rejects_repeated_queries() -> None:
    twice = pd.concat([ranks(1, range(3)), ranks(1, range(3))])
    with pytest.raises(pd.errors.MergeError):
        join_queries(twice, ranks(1, range(3)))


def test_join_queries_rejects_unlike_and_unknown_protocols() -> None:
    """The same images in five folds have other candidates: each fold is easier than the whole split."""
    full, folds = ranks(5, range(10)), ranks(9, range(10)).assign(protocol="fold")
    with pytest.raises(ValueError, match="image_retrieval: 10 of 10 common queries were ranked under different prot"):
        join_queries(full, folds)
    with pytest.raises(ValueError, match=r"a table of ranks has no column 'protocol'.*evaluate the model again"):
        join_queries(full, folds.drop(columns="protocol"))


def test_intervals_resample_images_not_queries() -> None:
    """Two images of 50 equal queries each: a resample has mean 0, 1/2 or 1, so the interval is [0, 1]."""
    values = np.repeat([0.0, 1.0], 50)
    images = ["a"] * 50 + ["b"] * 50
    assert mean_interval(values, images, resamples=200, seed=0) == (0.0, 1.0)
    totals = image_totals(2 * [PairedScores(values, 1 - values, images)])
    assert percentile_interval(bootstrap_difference(*totals, 200, 0), 0.95) == (-2.0, 2.0)
