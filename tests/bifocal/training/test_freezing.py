"""Frozen modules do not change, and wrong names are errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.models import TwoBranchModel

NewModel = Callable[..., TwoBranchModel]


def changed(before: TwoBranchModel, after: TwoBranchModel) -> set[str]:
    """Return the names of the parameters and buffers that differ."""
    state = after.state_dict()
    return {name for name, tensor in before.state_dict().items() if not torch.equal(state[name], tensor)}


def test_frozen_until_keeps_modules_until_their_epoch(train: Any, new_model: NewModel, checkpoints: Path) -> None:
    rules = {"text_encoder": None, "word_embedding": 1, "image_encoder": 2, "image_encoder.attention": 0}
    first, _ = train(checkpoints / "first", epochs=1, frozen_until=rules)
    assert changed(new_model(), first) == {"image_encoder.attention.weight"}
    second, _ = train(checkpoints / "second", epochs=2, frozen_until=rules)
    assert changed(first, second) == {"image_encoder.attention.weight", "word_embedding.weight"}
    third, _ = train(checkpoints / "third", epochs=3, frozen_until=rules | {"text_encoder": 0})
    assert changed(new_model(), third) == set(third.state_dict())


def test_frozen_module_keeps_its_batch_norm_statistics(train: Any, new_model: NewModel, checkpoints: Path) -> None:
    image_encoder = {"name": "ProjectionEncoder", "hidden": 8}
    start = new_model(image_encoder=image_encoder)
    arguments: dict[str, Any] = {"optimizer": {"name": "SGD", "momentum": 0.9, "weight_decay": 0.1}, "epochs": 1}
    rules = {"image_encoder": 1, "image_encoder.layers.0": 0}
    frozen, _ = train(
        checkpoints / "frozen", model=new_model(image_encoder=image_encoder), frozen_until=rules, **arguments
    )
    assert {name for name in changed(start, frozen) if name.startswith("image")} == {
        "image_encoder.layers.0.weight",
        "image_encoder.layers.0.bias",
    }
    free, _ = train(checkpoints / "free", model=new_model(image_encoder=image_encoder), **arguments)
    assert "image_encoder.layers.4.running_mean" in changed(start, free)


def test_module_frozen_by_its_encoder_stays_frozen(train: Any, new_model: NewModel, checkpoints: Path) -> None:
    model = new_model()
    model.text_encoder.requires_grad_(False)
    trained, _ = train(checkpoints, model=model, frozen_until={"image_encoder": 0}, epochs=1)
    assert not any(name.startswith("text_encoder") for name in changed(new_model(), trained))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frozen_until": {"text_encodr": 1}}, "the model has no 'text_encodr'; did you mean 'text_encoder'"),
        ({"frozen_until": {"image_encoder.atention": 1}}, "did you mean 'image_encoder.attention'"),
        ({"optimizer": {"name": "SDG"}}, "torch.optim has no 'SDG'; did you mean 'SGD'"),
        ({"optimizer": {"name": "SGD", "momentun": 0.9}}, "SGD takes no 'momentun'; did you mean 'momentum'"),
        ({"ema_decay": 1.0}, "ema_decay is 1.0: expected a number from 0 to below 1"),
    ],
)
def test_fit_rejects_bad_arguments(train: Any, checkpoints: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(checkpoints, **changes)
