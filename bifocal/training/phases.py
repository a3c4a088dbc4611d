"""Training in phases, one after another."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
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
    """Batches, loss and learning rate of some epochs; the other fields are arguments of ``fit``."""

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
    """History, the row of the best epoch, from 1 or 0 for the initialization, and the metric that chose it."""

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
    first_epoch: int = 0,
    on_epoch: Callable[[Row], None] = lambda row: None,
    **options: Any,
) -> TrainingResult:
    """Train ``model`` in place, each phase from the best weights of the phase before; undo a phase without improvement.

    An interrupted training that is called again with the same arguments resumes, if it has ``checkpoints``. If the
    model is ``initialized``, its weights are validated first, as epoch 0, and kept unless a phase improves on them.
    ``first_epoch`` is added to the epochs of the history, and ``options`` are arguments of ``fit`` that all phases
    share.
    """
    if not phases:
        raise ValueError("there are no phases to train: give one or more")
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
        start = {"epoch": 0, **World.current().broadcast_from_main(lambda: validators[0](model))}
        history.append(_numbered(start, 0, first_epoch, validators[0].monitor))
        result = TrainingResult(history, history[0], validators[0].monitor)
    trained, chosen_by = first_epoch, phases[0].validation
    with TemporaryDirectory() if checkpoints is None else nullcontext(checkpoints) as folder:
        for index, (phase, batches, augment, validator) in enumerate(
            zip(phases, prepared, augments, validators, strict=True)
        ):
            former_score = -inf
            if result is not None:
                # The same metric on other images is another metric.
                comparable = phase.validation == chosen_by
                metrics = result.best if comparable else World.current().broadcast_from_main(partial(validator, model))
                former_score = _score(metrics, validator.monitor)
            former_weights = copy.deepcopy(model.state_dict())
            rows = _train_phase(
                model,
                phase,
                batches,
                validator,
                augment=augment,
                numbered=partial(_numbered, phase=index, first_epoch=trained, monitor=validator.monitor),
                checkpoints=Path(folder) / f"phase-{index}",
                seed=seed,
                on_epoch=on_epoch,
                **options,
            )
            history += rows
            trained += len(rows)
            best = max(rows, key=lambda row: _score(row, validator.monitor))
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
    numbered: Callable[[Row], Row],
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
        on_epoch=lambda row: on_epoch(numbered(row)),
        **options,
    )
    for parameter in trainable:  # the modules that this phase froze may train in the next
        parameter.requires_grad_(True)
    return [numbered(row) for row in rows]


def _score(row: Row, monitor: str) -> float:
    return -inf if isnan(row[monitor]) else row[monitor]


def _numbered(row: Row, phase: int, first_epoch: int, monitor: str) -> Row:
    return {"phase": phase, **row, "epoch": first_epoch + row["epoch"], "monitor": row[monitor]}
