"""Optimizers, frozen modules and averaged weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bifocal.losses import InfoNCELoss, TripletLoss
from bifocal.models import TwoBranchModel
from bifocal.scores import Scores
from bifocal.serialization import read_tensors
from bifocal.training.optimizers import (
    average_weights,
    build_optimizer,
    limit_weight_decay,
    parameter_groups,
)

NewModel = Callable[..., TwoBranchModel]


def changed(before: TwoBranchModel, after: TwoBranchModel) -> set[str]:
    """Return the names of the parameters and buffers that differ."""
    state = after.state_dict()
    return {
        name for name, tensor in before.state_dict().items() if not torch.equal(state[name], tensor)
    }


def test_frozen_until_keeps_modules_until_their_epoch(
    train: Any, new_model: NewModel, checkpoints: Path
) -> None:
    rules = {
        "text_encoder": None,
        "word_embedding": 1,
        "image_encoder": 2,
        "image_encoder.attention": 0,
    }
    first, _ = train(checkpoints / "first", epochs=1, frozen_until=rules)
    assert changed(new_model(), first) == {"image_encoder.attention.weight"}
    second, _ = train(checkpoints / "second", epochs=2, frozen_until=rules)
    assert changed(first, second) == {"image_encoder.attention.weight", "word_embedding.weight"}
    third, _ = train(checkpoints / "third", epochs=3, frozen_until=rules | {"text_encoder": 0})
    assert changed(new_model(), third) == set(third.state_dict())


def test_frozen_module_keeps_its_batch_norm_statistics(
    train: Any, new_model: NewModel, checkpoints: Path
) -> None:
    image_encoder = {"name": "ProjectionEncoder", "hidden": 8}
    start = new_model(image_encoder=image_encoder)
    arguments: dict[str, Any] = {
        "optimizer": {"name": "SGD", "momentum": 0.9, "weight_decay": 0.1},
        "epochs": 1,
    }
    rules = {"image_encoder": 1, "image_encoder.projection.0": 0}
    frozen, _ = train(
        checkpoints / "frozen",
        model=new_model(image_encoder=image_encoder),
        frozen_until=rules,
        **arguments,
    )
    assert {name for name in changed(start, frozen) if name.startswith("image")} == {
        "image_encoder.projection.0.weight",
        "image_encoder.projection.0.bias",
    }
    free, _ = train(checkpoints / "free", model=new_model(image_encoder=image_encoder), **arguments)
    assert "image_encoder.projection.4.running_mean" in changed(start, free)


def test_module_frozen_by_its_encoder_stays_frozen(
    train: Any, new_model: NewModel, checkpoints: Path
) -> None:
    model = new_model()
    model.text_encoder.requires_grad_(False)
    trained, _ = train(checkpoints, model=model, frozen_until={"image_encoder": 0}, epochs=1)
    assert not any(name.startswith("text_encoder") for name in changed(new_model(), trained))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"frozen_until": {"text_encodr": 1}},
            "the model has no 'text_encodr'; did you mean 'text_encoder'",
        ),
        ({"frozen_until": {"image_encoder.atention": 1}}, "did you mean 'image_encoder.attention'"),
        ({"optimizer": {"name": "SDG"}}, "torch.optim has no 'SDG'; did you mean 'SGD'"),
        (
            {"optimizer": {"name": "SGD", "momentun": 0.9}},
            "SGD takes no 'momentun'; did you mean 'momentum'",
        ),
        ({"ema_decay": 1.0}, r"ema_decay is 1.0: expected a number in \[0, 1\)"),
    ],
)
def test_fit_rejects_bad_arguments(
    train: Any, checkpoints: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train(checkpoints, **changes)


@pytest.mark.parametrize(
    "optimizer", [{"name": "SGD", "weight_decay": 0.5}, {"name": "AdamW", "weight_decay": 0.5}]
)
def test_weight_decay_shrinks_matrices_alone(optimizer: dict[str, object]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 3))
    loss = InfoNCELoss(learn_temperature=True)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    groups = [*parameter_groups(model, {"0": 0.5}), {"params": list(loss.parameters())}]
    built = build_optimizer(optimizer, limit_weight_decay(groups, optimizer), 0.1)
    for group in built.param_groups:
        group["lr"] = 0.1 * group.get("factor", 1.0)
    for parameter in (*model.parameters(), *loss.parameters()):
        parameter.grad = torch.zeros_like(parameter)
    built.step()
    factors = {"0.weight": 1 - 0.5 * 0.1 * 0.5, "2.weight": 1 - 0.1 * 0.5}
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, factors.get(name, 1.0) * start[name])
    assert loss.learned_values() == {"temperature": pytest.approx(0.07)}


def test_groups_stay_as_they_are_without_weight_decay() -> None:
    groups = parameter_groups(nn.Linear(2, 2), {})
    assert limit_weight_decay(groups, "Adam") == groups
    assert len(limit_weight_decay(groups, "AdamW")) == 2  # torch's default is 0.01


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
