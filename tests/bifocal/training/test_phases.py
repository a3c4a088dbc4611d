"""Training in phases on a small collection with real stores."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bifocal.losses import TripletLoss
from bifocal.models import TwoBranchModel
from bifocal.scores import Scores
from bifocal.training import FitOptions, TrainingPhase, train_phases
from bifocal.training.batches import CaptionBatches
from bifocal.training.fitting import TrainingResult
from bifocal.training.inputs import TrainingInputs
from bifocal.training.validators import Validate, Validation


class Given(Validation):
    """Validation that gives the values, one per call; values of one metric on equally many images
    are comparable."""

    def __init__(self, monitor: str, values: list[float], images: int = 100) -> None:
        self.monitor, self.values, self.images = monitor, iter(values), images

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and (self.monitor, self.images) == (
            other.monitor,
            other.images,
        )

    def __hash__(self) -> int:
        return hash((self.monitor, self.images))

    def prepare(self, inputs: TrainingInputs) -> Validate:
        def validate(model: nn.Module) -> dict[str, float]:
            model.eval()
            return {self.monitor: next(self.values)}

        return validate


class Interrupted(nn.Module):
    """A loss that calls ``tick`` first."""

    def __init__(self, tick: Callable[[], None]) -> None:
        super().__init__()
        self.tick, self.loss = tick, TripletLoss()

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        self.tick()
        value: Tensor = self.loss(scores, matches)
        return value


def phase(epochs: int = 1, **changes: Any) -> TrainingPhase:
    defaults = TrainingPhase(
        CaptionBatches(batch_size=16), TripletLoss(), epochs=epochs, learning_rate=0.01
    )
    return replace(defaults, **changes)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(second[name], tensor) for name, tensor in first.items())


def test_phases_continue_one_history(
    inputs: TrainingInputs, new_model: Callable[[], TwoBranchModel], checkpoints: Path
) -> None:
    rows: list[dict[str, float]] = []
    phases = [phase(2), phase(3, learning_rate=0.005)]
    result = train_phases(
        new_model(), phases, inputs, checkpoints=checkpoints, seed=3, on_epoch=rows.append
    )
    assert [(row["phase"], row["epoch"]) for row in result.history] == [
        (0, 1),
        (0, 2),
        (1, 3),
        (1, 4),
        (1, 5),
    ]
    assert [row["learning_rate"] for row in result.history] == [0.01, 0.01, 0.005, 0.005, 0.005]
    assert rows == result.history
    assert result.monitor == "recall_sum"
    assert result.best["recall_sum"] == max(row["recall_sum"] for row in result.history)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["phase-0", "phase-1"]


@pytest.mark.parametrize(
    ("value", "kept"), [(50.1, True), (50.0, False), (49.0, False), (float("nan"), False)]
)
def test_phase_that_does_not_improve_its_metric_is_undone(
    inputs: TrainingInputs,
    new_model: Callable[[], TwoBranchModel],
    checkpoints: Path,
    value: float,
    kept: bool,
) -> None:
    def train(folder: str, *phases: TrainingPhase) -> tuple[dict[str, Tensor], TrainingResult]:
        model = new_model()  # seeds the random numbers of dropout too
        result = train_phases(model, phases, inputs, checkpoints=checkpoints / folder)
        return weights(model), result

    one, _ = train("one", phase(2, validator=Given("score", [20.0, 50.0])))
    second = phase(validator=Given("score", [value]))
    two, result = train("two", phase(2, validator=Given("score", [20.0, 50.0])), second)
    assert same(one, two) != kept
    assert result.best["epoch"] == (3 if kept else 2)
    assert len(result.history) == 3


@pytest.mark.parametrize(("start", "kept"), [(30.0, True), (60.0, False)])
@pytest.mark.parametrize(("metric", "images"), [("ndcg", 100), ("recall", 50)])
def test_phase_with_another_metric_or_other_images_is_compared_with_its_start(
    inputs: TrainingInputs,
    new_model: Callable[[], TwoBranchModel],
    checkpoints: Path,
    start: float,
    kept: bool,
    metric: str,
    images: int,
) -> None:
    phases = [
        phase(validator=Given("recall", [90.0])),
        phase(validator=Given(metric, [start, 40.0], images)),
    ]
    result = train_phases(new_model(), phases, inputs, checkpoints=checkpoints)
    assert (result.monitor, result.best["epoch"]) == ((metric, 2) if kept else ("recall", 1))


def test_frozen_modules_of_a_phase_train_in_the_next(
    inputs: TrainingInputs, new_model: Callable[[], TwoBranchModel], checkpoints: Path
) -> None:
    frozen_until = {"text_encoder": None, "word_embedding": None}

    def moved(*later: TrainingPhase) -> set[str]:
        model = new_model()
        start = weights(model)
        frozen = phase(validator=Given("score", [1.0]), frozen_until=frozen_until)
        train_phases(model, [frozen, *later], inputs, checkpoints=checkpoints / str(len(later)))
        return {
            name.partition(".")[0]
            for name, tensor in weights(model).items()
            if not torch.equal(tensor, start[name])
        }

    assert moved() == {"image_encoder"}
    second = phase(validator=Given("score", [2.0]))
    assert moved(second) == {"image_encoder", "text_encoder", "word_embedding"}


@pytest.mark.parametrize("step", [3, 5, 8])
def test_killed_training_resumes_in_its_phase(
    inputs: TrainingInputs,
    new_model: Callable[[], TwoBranchModel],
    tmp_path: Path,
    kill_at: Callable[[int], Callable[[], None]],
    step: int,
) -> None:
    def train(folder: str, tick: Callable[[], None]) -> tuple[dict[str, Tensor], TrainingResult]:
        loss, model = Interrupted(tick), new_model()
        phases = [phase(loss=loss), phase(loss=loss, batches=CaptionBatches(batch_size=20))]
        options = FitOptions(checkpoint_every_seconds=0.0)
        result = train_phases(
            model, phases, inputs, checkpoints=tmp_path / folder, options=options, seed=3
        )
        return weights(model), result

    expected, history = train("undisturbed", lambda: None)
    with pytest.raises(KeyboardInterrupt):
        train("killed", kill_at(step))
    resumed, again = train("killed", lambda: None)
    assert again == history
    assert same(expected, resumed)


def test_mistakes_in_a_later_phase_come_before_any_training(
    inputs: TrainingInputs, new_model: Callable[[], TwoBranchModel], checkpoints: Path
) -> None:
    with pytest.raises(ValueError, match="the model has no 'text_encodr'"):
        train_phases(
            new_model(),
            [phase(), phase(frozen_until={"text_encodr": 1})],
            inputs,
            checkpoints=checkpoints,
        )
    with pytest.raises(ValueError, match="no phases to train"):
        train_phases(new_model(), [], inputs, checkpoints=checkpoints)
    assert not checkpoints.exists()
