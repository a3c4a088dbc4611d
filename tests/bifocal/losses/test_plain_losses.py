"""Regression, soft margin and the sum of losses against loops over their equations."""

from math import exp, log

import pytest
import torch

from bifocal.losses import (
    InfoNCELoss,
    MeanAveragePrecisionLoss,
    MultiLabelSoftMarginLoss,
    RecallLoss,
    RegressionLoss,
    SpearmanLoss,
    TripletLoss,
    WeightedSumLoss,
)
from bifocal.registry import build
from bifocal.scores import Scores
from bifocal.sorters import PairwiseSorter


def random_scores(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("to_ranks", [False, True])
@pytest.mark.parametrize("power", [1, 2])
def test_regression_is_the_mean_distance_to_the_targets_or_their_ranks(power, to_ranks):
    scores, targets = random_scores(3, 7), random_scores(3, 7, seed=1)
    total = 0.0
    for row, truth in zip(scores.tolist(), targets.tolist(), strict=True):
        for score, target in zip(row, truth, strict=True):
            wanted = 0.5 - sum(other > target for other in truth) / 7 if to_ranks else target
            total += abs(score - wanted) ** power / 21
    assert RegressionLoss(power, to_ranks)(Scores(scores), targets).item() == pytest.approx(total)


def test_regression_knows_two_powers():
    with pytest.raises(ValueError, match="power is 3"):
        RegressionLoss(3)


def test_soft_margin_is_cross_entropy_of_every_label():
    scores, matches = random_scores(3, 7), random_scores(3, 7, seed=1) > 0
    expected = [
        -log(1 / (1 + exp(-score if match else score)))
        for row, truth in zip(scores.tolist(), matches.tolist(), strict=True)
        for score, match in zip(row, truth, strict=True)
    ]
    assert MultiLabelSoftMarginLoss()(Scores(scores), matches).item() == pytest.approx(sum(expected) / 21)


@pytest.mark.parametrize(
    ("loss", "plain"), [(SpearmanLoss, RegressionLoss(power=1)), (MeanAveragePrecisionLoss, MultiLabelSoftMarginLoss())]
)
def test_a_rank_loss_is_aligned_by_the_plain_loss_of_its_task(loss, plain):
    scores, matches = Scores(random_scores(3, 7)), random_scores(3, 7, seed=1) > 0
    added = loss(alignment_weight=1.0)(scores, matches) - loss()(scores, matches)
    torch.testing.assert_close(added, plain(scores, matches))


def test_a_sum_weighs_its_losses_and_shares_its_sorter():
    scores, matches, sorter = Scores(random_scores(5, 5)), torch.eye(5, dtype=torch.bool), PairwiseSorter()
    parts = [
        {"name": "InfoNCELoss", "temperature": 0.3},
        {"name": "RecallLoss", "margin": 2.0},
        {"name": "TripletLoss"},
    ]
    ref = {"name": "WeightedSumLoss", "losses": parts, "weights": [1.0, 0.5, 0.25]}
    total = build("bifocal.losses", ref, sorter=sorter)(scores, matches)
    expected = (
        InfoNCELoss(temperature=0.3)(scores, matches)
        + 0.5 * RecallLoss(sorter, margin=2.0)(scores, matches)
        + 0.25 * TripletLoss()(scores, matches)
    )
    torch.testing.assert_close(total, expected)
    doubled = WeightedSumLoss([TripletLoss(), TripletLoss()])
    torch.testing.assert_close(doubled(scores, matches), 2 * TripletLoss()(scores, matches))


@pytest.mark.parametrize(("losses", "weights"), [([], None), ([TripletLoss()], [1.0, 2.0])])
def test_a_sum_wants_a_weight_for_each_loss(losses, weights):
    with pytest.raises(ValueError, match=f"got {len(losses)} losses and {len(weights or [])} weights"):
        WeightedSumLoss(losses, weights)
