"""WeightedSumLoss, built from modules and by name."""

import pytest
import torch

from bifocal.losses import InfoNCELoss, RecallLoss, TripletLoss, WeightedSumLoss
from bifocal.registry import build
from bifocal.scores import Scores
from bifocal.sorters import PairwiseSorter


def test_weighted_sum_weights_its_losses_and_shares_the_sorter():
    scores = Scores(
        torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    )
    matches, sorter = torch.eye(5, dtype=torch.bool), PairwiseSorter()
    losses = [
        {"name": "InfoNCELoss", "temperature": 0.3},
        {"name": "RecallLoss", "margin": 2.0},
        "TripletLoss",
    ]
    ref = {"name": "WeightedSumLoss", "losses": losses, "weights": [1.0, 0.5, 0.25]}
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
def test_weighted_sum_rejects_another_number_of_weights(losses, weights):
    message = f"got {len(losses)} losses and {len(weights or [])} weights"
    with pytest.raises(ValueError, match=message):
        WeightedSumLoss(losses, weights)
    assert message in " ".join(WeightedSumLoss.conflicts({"losses": losses, "weights": weights}))
