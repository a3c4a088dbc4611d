"""Training in phases, one after another."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from bifocal.training.augmentations.base import Augment, Augmentation
from bifocal.training.batches.base import Batches, PreparedBatches
from bifocal.training.distributed import World
from bifocal.training.fitting import fit
from bifocal.training.freezing import FreezeSchedule, check_module_names
from bifocal.training.inputs import TrainingInputs
from bifocal.training.loop import Row
from bifocal.training.schedules import Constant, Schedule
from bifocal.training.validators.base import Validation, Validator


@dataclass(frozen=True)
class TrainingPhase:
    """Batches, loss and learning rate of some epochs.

    Args:
        batches: the examples that share a batch.
        loss: ``loss(scores, matches) -> scalar``.
        epochs: epochs of this phase.
        learning_rate: base learning rate, which ``schedule`` multiplies.
        schedule: factor of the learning rate.
        frozen_until: modules that are frozen in the first epochs of this phase, or in all of them, see ``fit``.
        learning_rate_factors: factors of the learning rates of modules.
        augmentations: random changes of each batch, in order.
        validator: the metric that chooses the epoch; None for that of the batches.
    """

    batches: Batches
    loss: nn.Module
    epochs: int
    learning_rate: float
    schedule: Schedule = field(default_factory=Constant)
    frozen_until: FreezeSchedule = field(default_factory=dict)
    learning_rate_factors: Mapping[str, float] = field(default_factory=dict)
    augmentations: Sequence[Augmentation] = ()
    validator: Validation | None = None

    @property
    def validation(self) -> Validation:
        """Choice of the validation metric, and of the images that it is computed on."""
        return self.validator or self.batches.validator()


@dataclass(frozen=True)
class TrainingResult:
    """History of all phases, and the epoch whose weights the model has.

    Attributes:
        history: one row per epoch; epochs count from 1 through all phases, phases from 0. Epoch 0, if there is one, is
            the initialization.
        best: the row of the best epoch.
        monitor: the metric that chose it.
    """

    history: list[Row]
    best: Row
    monitor: str


def train_phases(
    model: nn.Module,
    phases: Sequence[TrainingPhase],
    inputs: TrainingInputs,
    *,
    checkpoints: Path | None = None,
    seed: int = 0,
    initialized: bool = False,
    on_epoch: Callable[[Row], None] = lambda row: None,
    **options: Any,
) -> TrainingResult:
    """Train ``model`` in place, each phase from the best weights of the phase before.

    A phase that does not improve its validation metric is undone. An interrupted training that is called again with
    the same arguments resumes, see ``fit``.

    Args:
        model: ``model(batch) -> Scores``.
        phases: at least one.
        inputs: dataset, features and text.
        checkpoints: directory of this training alone; each phase has a directory below it. None: a temporary directory,
            and an interrupted training starts again.
        seed: of all random draws.
        initialized: whether the weights of ``model`` are a result already, as epoch 0: they are validated first, and
            kept unless a phase improves on them.
        on_epoch: called with each new row of the history.
        options: arguments of ``fit`` that all phases share, such as ``optimizer`` and ``precision``.

    Raises:
        ValueError: there are no phases, or a phase does not fit the model, the loss or the inputs.
    """
    if not phases:
        raise ValueError("there are no phases to train: give one or more")
    if checkpoints is None:
        with TemporaryDirectory() as folder:
            return train_phases(
                model,
                phases,
                inputs,
                checkpoints=Path(folder),
                seed=seed,
                initialized=initialized,
                on_epoch=on_epoch,
                **options,
            )
    # Check and prepare all phases first: a mistake in the last one must not cost the training of the first.
    for phase in phases:
        check_module_names(model, phase.frozen_until)
        check_module_names(model, phase.learning_rate_factors, "learning_rate_factors")
    prepared = [
        phase.batches.prepare(inputs, model=model, loss=phase.loss, seed=seed + index)
        for index, phase in enumerate(phases)
    ]
    augments = [[augmentation.prepare(inputs) for augmentation in phase.augmentations] for phase in phases]
    validators = [phase.validation.prepare(inputs) for phase in phases]
    history: list[Row] = []
    result: TrainingResult | None = None
    if initialized:
        history.append(_initial_row(model, validators[0]))
        result = TrainingResult(history, history[0], validators[0].monitor)
    trained, chosen_by = 0, phases[0].validation
    for index, (phase, batches, augment, validator) in enumerate(
        zip(phases, prepared, augments, validators, strict=True)
    ):
        former_score = -inf
        if result is not None:
            # The same metric on other images is another metric.
            comparable = phase.validation == chosen_by
            former_score = _score(result.best, result.monitor) if comparable else _validate(model, validator)
        former_weights = copy.deepcopy(model.state_dict())
        rows = _train_phase(
            model,
            phase,
            batches,
            validator,
            augment=augment,
            numbering={"phase": index, "first_epoch": trained},
            checkpoints=checkpoints / f"phase-{index}",
            seed=seed,
            on_epoch=on_epoch,
            **options,
        )
        history += rows
        trained += len(rows)
        best = _best(rows, validator.monitor)
        if result is None or _score(best, validator.monitor) > former_score:
            result, chosen_by = TrainingResult(history, best, validator.monitor), phase.validation
        else:
            model.load_state_dict(former_weights)
    assert result is not None
    return result


def _train_phase(
    model: nn.Module,
    phase: TrainingPhase,
    batches: PreparedBatches,
    validator: Validator,
    *,
    augment: Sequence[Augment],
    numbering: Mapping[str, int],
    checkpoints: Path,
    on_epoch: Callable[[Row], None],
    **options: Any,
) -> list[Row]:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    batches.begin(checkpoints)
    rows = fit(
        model,
        phase.loss,
        batches.source,
        validator,
        sampler=batches.sampler,
        augment=augment,
        epochs=phase.epochs,
        learning_rate=phase.learning_rate,
        schedule=phase.schedule,
        frozen_until=phase.frozen_until,
        learning_rate_factors=phase.learning_rate_factors,
        checkpoints=checkpoints,
        on_epoch=lambda row: on_epoch(_numbered(row, **numbering)),
        **options,
    )
    for parameter in trainable:  # the modules that this phase froze may train in the next
        parameter.requires_grad_(True)
    return [_numbered(row, **numbering) for row in rows]


def _initial_row(model: nn.Module, validator: Validator) -> Row:
    """Return the validation of the weights that the training starts from, as epoch 0."""
    metrics: Row = World.current().broadcast_from_main(lambda: validator(model))
    return {"phase": 0, "epoch": 0, **metrics}


def _validate(model: nn.Module, validator: Validator) -> float:
    """Return the metric that chooses the epoch, for the weights that a phase starts from."""
    return _score(World.current().broadcast_from_main(lambda: validator(model)), validator.monitor)


def _best(rows: Sequence[Row], monitor: str) -> Row:
    return max(rows, key=lambda row: _score(row, monitor))


def _score(row: Row, monitor: str) -> float:
    return -inf if isnan(row[monitor]) else row[monitor]


def _numbered(row: Row, phase: int, first_epoch: int) -> Row:
    return {"phase": phase, **row, "epoch": first_epoch + row["epoch"]}
