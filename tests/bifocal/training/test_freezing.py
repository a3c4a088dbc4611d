"""What is trained when, and how fast."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.models import TwoBranchModel
from bifocal.training.freezing import learning_rate_at

NewModel = Callable[..., TwoBranchModel]


def moved(start: TwoBranchModel, model: TwoBranchModel) -> set[str]:
    """Names of the parameters and buffers that are not what they were."""
    after = model.state_dict()
    return {name for name, tensor in start.state_dict().items() if not torch.equal(after[name], tensor)}


def test_the_learning_rate_decays(train: Any, checkpoints: Path) -> None:
    _, history = train(checkpoints, epochs=4, decay_after=[1, 3])
    assert [row["learning_rate"] for row in history] == [0.01, 0.005, 0.005, 0.0025]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # BEAN, section 4.1: divided by two at every epoch until the seventh.
        ((0.001, [1, 2, 3, 4, 5, 6, 7], 0.5), {0: 1e-3, 1: 5e-4, 6.9: 1e-3 / 64, 7: 1e-3 / 128, 30: 1e-3 / 128}),
        # SMILE, thesis 3.3.1: halved after epochs 6, 15, 25, 40 and 60.
        ((0.001, [6, 15, 25, 40, 60], 0.5), {5.99: 1e-3, 6: 5e-4, 59: 1e-3 / 16, 60: 1e-3 / 32}),
        # Structure-preserving, section 3.2: from 0.1, by 0.1 after every 10 epochs.
        ((0.1, [10, 20], 0.1), {9: 0.1, 10: 0.01, 20: 0.001}),
        # Semantic retrieval, section 4.1: a tenth after 8,000 updates, of epochs of 3,000.
        ((1e-5, [8000 / 3000], 0.1), {7999 / 3000: 1e-5, 8000 / 3000: 1e-6}),
    ],
)
def test_the_schedules_of_the_papers(schedule: tuple[float, list[float], float], expected: dict[float, float]) -> None:
    for epoch, rate in expected.items():
        assert learning_rate_at(epoch, *schedule) == pytest.approx(rate)


def test_a_decay_inside_an_epoch_comes_at_its_step(train: Any, checkpoints: Path) -> None:
    _, history = train(checkpoints, epochs=2, decay_after=[0.9, 1.2], decay_factor=0.1)
    # The last of five steps starts at 0.8.
    assert [row["learning_rate"] for row in history] == pytest.approx([0.01, 0.0001])


def test_parts_wait_for_their_epoch(train: Any, new_model: NewModel, checkpoints: Path) -> None:
    rules = {"text_encoder": None, "words": 1, "image_encoder": 2, "image_encoder.attention": 0}
    first, _ = train(checkpoints / "first", epochs=1, train_from=rules)
    assert moved(new_model(), first) == {"image_encoder.attention.weight"}
    model, _ = train(checkpoints / "second", epochs=2, train_from=rules)
    assert moved(first, model) == {"image_encoder.attention.weight", "words.weight"}
    everything, _ = train(checkpoints / "third", epochs=3, train_from=rules | {"text_encoder": 0})
    assert moved(new_model(), everything) == set(everything.state_dict())


def test_a_part_that_waits_keeps_its_statistics(train: Any, new_model: NewModel, checkpoints: Path) -> None:
    image_encoder = {"name": "ProjectionEncoder", "hidden": 8}
    start = new_model(image_encoder=image_encoder)
    arguments: dict[str, Any] = {"optimizer": {"name": "SGD", "momentum": 0.9, "weight_decay": 0.1}, "epochs": 1}
    waiting = {"image_encoder": 1, "image_encoder.layers.0": 0}
    model, _ = train(
        checkpoints / "waiting", model=new_model(image_encoder=image_encoder), train_from=waiting, **arguments
    )
    assert {name for name in moved(start, model) if name.startswith("image")} == {
        "image_encoder.layers.0.weight",
        "image_encoder.layers.0.bias",
    }
    free, _ = train(checkpoints / "free", model=new_model(image_encoder=image_encoder), **arguments)
    assert "image_encoder.layers.4.running_mean" in moved(start, free)


def test_what_an_encoder_froze_stays_frozen(train: Any, new_model: NewModel, checkpoints: Path) -> None:
    model = new_model()
    model.text_encoder.requires_grad_(False)
    found, _ = train(checkpoints, model=model, train_from={"image_encoder": 0}, epochs=1)
    assert not any(name.startswith("text_encoder") for name in moved(new_model(), found))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_from": {"text_encodr": 1}}, "the model has no 'text_encodr'; did you mean 'text_encoder'"),
        ({"train_from": {"image_encoder.atention": 1}}, "did you mean 'image_encoder.attention'"),
        ({"optimizer": {"name": "SDG"}}, "torch.optim has no 'SDG'; did you mean 'SGD'"),
        ({"optimizer": {"name": "SGD", "momentun": 0.9}}, "SGD takes no 'momentun'; did you mean 'momentum'"),
        ({"average": 1.0}, "average is 1.0, expected a decay from 0 to below 1"),
    ],
)
def test_mistakes_are_named(train: Any, checkpoints: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(checkpoints, **changes)
