"""MeanAveragePrecisionLoss against a loop over its equation."""

import pytest
import torch
from torch import Tensor

from bifocal.losses import MeanAveragePrecisionLoss
from bifocal.scores import Scores


def random_scores(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(
        rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def eq_5_9(scores: list[list[float]], matches: list[list[bool]]) -> float:
    """The mean over the classes of the mean rank of the matches, ranks divided by n."""
    classes = []
    for y, truth in zip(scores, matches, strict=True):
        ranks = [sum(other > y[j] for other in y) / len(y) for j in range(len(y)) if truth[j]]
        if ranks:
            classes.append(sum(ranks) / len(ranks))
    return sum(classes) / len(classes)


def test_mean_average_precision_is_eq_5_9():
    scores = random_scores(6, 15)
    matches = random_scores(6, 15, seed=1) > 0.8
    matches[2] = False  # a class without a match in the batch
    loss = MeanAveragePrecisionLoss()(Scores(scores), matches)
    assert loss.item() == pytest.approx(eq_5_9(scores.tolist(), matches.tolist()))
