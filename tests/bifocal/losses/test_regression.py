"""RegressionLoss against a loop over its equation."""

import pytest
import torch

from bifocal.losses import RegressionLoss
from bifocal.scores import Scores


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


def test_regression_rejects_other_powers():
    with pytest.raises(ValueError, match="power is 3"):
        RegressionLoss(3)
