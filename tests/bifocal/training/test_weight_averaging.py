"""Exponential moving average of the weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bifocal.losses import TripletLoss
from bifocal.scores import Scores
from bifocal.serialization import read_tensors
from bifocal.training.weight_averaging import average_weights


@pytest.mark.parametrize("decay", [0.3, 0.99])
def test_average_weights_is_its_recurrence(decay: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(1, 1, bias=False)
    averaged = average_weights(model, decay)
    expected = None
    for step in range(30):
        weight = float(torch.randn(()))
        with torch.no_grad():
            model.weight.fill_(weight)
        averaged.update_parameters(model)
        d = min(decay, (1 + step) / (10 + step))
        expected = weight if expected is None else d * expected + (1 - d) * weight
        assert averaged.module.weight.item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_fit_keeps_the_averaged_weights(train: Any, new_model: Any, checkpoints: Path) -> None:
    weights: list[Tensor] = []

    class RecordingLoss(TripletLoss):
        """Records the weights before each step."""

        def forward(self, scores: Scores, matches: Tensor) -> Tensor:
            weights.append(trained.image_encoder.attention.weight.detach().clone())
            return super().forward(scores, matches)

    trained = new_model()
    train(checkpoints, RecordingLoss(), model=trained, epochs=1, ema_decay=0.5)
    last, _ = read_tensors(checkpoints / "last.safetensors")
    weights.append(last["model.model.image_encoder.attention.weight"])
    expected = weights[1]
    for step, weight in enumerate(weights[2:], start=1):
        d = min(0.5, (1 + step) / (10 + step))
        expected = d * expected + (1 - d) * weight
    kept = trained.image_encoder.attention.weight
    torch.testing.assert_close(kept, expected)
    assert not torch.allclose(kept, weights[-1])
