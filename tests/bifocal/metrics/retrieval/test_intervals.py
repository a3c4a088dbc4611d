"""Intervals against percentiles of a loop over resamples."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bifocal.metrics import retrieval_intervals, score_ranks
from bifocal.metrics.retrieval.blockwise_ranks import BlockScores

SCORES = torch.tensor(
    [
        [0.9, 0.1, 0.3, 0.2, 0.0, 0.1, 0.0, 0.2, 0.1, 0.0],
        [0.1, 0.2, 0.4, 0.3, 0.6, 0.1, 0.0, 0.0, 0.1, 0.2],
        [0.2, 0.0, 0.1, 0.8, 0.5, 0.6, 0.3, 0.1, 0.0, 0.7],
        [0.3, 0.2, 0.1, 0.0, 0.4, 0.2, 0.1, 0.3, 0.2, 0.1],
        [0.0, 0.4, 0.2, 0.1, 0.3, 0.7, 0.6, 0.2, 0.5, 0.5],
    ]
)
"""Image i has captions 2i and 2i + 1."""
IMAGE_OF_CAPTION = torch.arange(5).repeat_interleave(2)


def blocks(scores: Tensor) -> BlockScores:
    return lambda rows, columns: scores[rows][:, columns]


def test_retrieval_intervals_equal_percentiles_over_resampled_images() -> None:
    ranked = score_ranks(blocks(SCORES), IMAGE_OF_CAPTION, images=5)
    resamples = 200
    report = retrieval_intervals(ranked, IMAGE_OF_CAPTION, (1, 2), resamples=resamples, level=0.9, seed=4)
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
        low, high = np.quantile(expected[name], [0.05, 0.95])
        assert report["image_retrieval"][name] == pytest.approx({"low": low, "high": high})
    low, high = np.quantile(expected["sum"], [0.05, 0.95])
    assert report["recall_sum"]["total"] == pytest.approx({"low": low, "high": high})
