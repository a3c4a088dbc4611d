"""Losses and sorters on the GPU in float32 against the CPU in float64: values and gradients."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.losses import RecallLoss
from bifocal.registry import build, registered
from bifocal.scores import Scores
from tests.cuda.device import DEVICE, needs_device, relative_error

pytestmark = needs_device
SIZE = 40
ARGUMENTS: dict[str, dict[str, Any]] = {
    "InfoNCELoss": {"learn_temperature": True, "label_smoothing": 0.1},
    "StructurePreservingLoss": {"visual_weight": 0.1},
    "WeightedSumLoss": {"losses": ["TripletLoss", "SigmoidLoss"]},
}


def all_scores(images: Tensor, captions: Tensor) -> Scores:
    """Return scores with all parts that a loss may read."""
    images, captions = normalize(images, dim=1), normalize(captions, dim=1)
    cross, cut = (
        images @ captions.T,
        Scores(normalize(images[:, :4], dim=1) @ normalize(captions[:, :4], dim=1).T),
    )
    return Scores(
        cross, images @ images.T, captions @ captions.T, 2 * cross, cross + cross**3, (cut,)
    )


def value_and_gradients(loss: nn.Module, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(1)
    vectors = (
        torch.randn(2, SIZE, 8, dtype=torch.float64).to(device, dtype, copy=True).requires_grad_()
    )
    matches = torch.eye(SIZE, dtype=torch.bool) | (torch.rand(SIZE, SIZE) < 0.05)
    loss = copy.deepcopy(loss).to(device, dtype).train()
    value: Tensor = loss(all_scores(*vectors), matches.to(device))
    value.backward()
    assert vectors.grad is not None
    assert value.device.type == device.type
    return [
        value,
        vectors.grad,
        *(weight.grad for weight in loss.parameters() if weight.grad is not None),
    ]


def check(loss: nn.Module) -> None:
    actual = value_and_gradients(loss, DEVICE, torch.float32)
    expected = value_and_gradients(loss, torch.device("cpu"), torch.float64)
    assert expected[1].any()
    assert relative_error(actual[:1], expected[:1]) < 1e-5
    assert relative_error(actual[1:], expected[1:]) < 1e-3


@pytest.mark.parametrize("name", sorted(registered("bifocal.losses")))
def test_loss_equals_the_cpu(name: str) -> None:
    check(build("bifocal.losses", {"name": name, **ARGUMENTS.get(name, {})}))


@pytest.mark.parametrize("name", sorted(registered("bifocal.sorters")))
def test_loss_through_a_sorter_equals_the_cpu(name: str) -> None:
    """A sorter with weights is fine-tuned, too: cuDNN must allow gradients, also of LSTMs in
    evaluation mode."""
    torch.manual_seed(0)
    sorter = build("bifocal.sorters", name, length=SIZE, hidden=16)
    check(RecallLoss(sorter, fine_tune=0.5 if list(sorter.parameters()) else 0.0))
