"""SigmoidLoss against a loop over its equation."""

import math

import pytest
import torch

from bifocal.losses import SigmoidLoss
from bifocal.scores import Scores


def equation(scores: list[list[float]], matches: list[list[bool]], t: float, b: float) -> float:
    total, pairs = 0.0, 0
    for row, truth in zip(scores, matches, strict=True):
        for score, match in zip(row, truth, strict=True):
            z = 1 if match else -1
            pairs += match
            total -= math.log(1 / (1 + math.exp(z * (-t * score - b))))
    return total / pairs


@pytest.mark.parametrize("captions_per_image", [1, 3])
@pytest.mark.parametrize("images", [2, 3, 17])
def test_sigmoid_is_its_equation(images: int, captions_per_image: int) -> None:
    torch.manual_seed(images)
    scores = 2 * torch.rand(images, images * captions_per_image, dtype=torch.float64) - 1
    matches = torch.eye(images, dtype=torch.bool).repeat_interleave(captions_per_image, dim=1)
    loss = SigmoidLoss(temperature=4.0, bias=-2.0).double()
    assert loss.learned_values() == {"temperature": pytest.approx(4.0), "bias": -2.0}
    assert loss(Scores(scores), matches).item() == pytest.approx(
        equation(scores.tolist(), matches.tolist(), 4.0, -2.0), rel=1e-6
    )
    assert torch.autograd.gradcheck(lambda s: loss(Scores(s), matches), scores.requires_grad_())


def test_sigmoid_learns_temperature_and_bias() -> None:
    loss = SigmoidLoss()
    loss(Scores(torch.rand(4, 4)), torch.eye(4, dtype=torch.bool)).backward()
    assert {
        name for name, part in loss.named_parameters() if part.grad is not None and part.grad != 0
    } == {
        "log_temperature",
        "bias",
    }
