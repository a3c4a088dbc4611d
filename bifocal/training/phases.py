"""Training in phases, one after another."""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf, isnan
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from bifocal.training.distributed import World
from bifocal.training.fitting import FitOptions, TrainingPhase, fit
from bifocal.training.freezing import check_module_names
from bifocal.training.inputs import TrainingInputs
from bifocal.training.loop import Row


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
    options: FitOptions = FitOptions(),  # noqa: B008 - immutable
    seed: int = 0,
    initialized: bool = False,
    first_epoch: int = 0,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> TrainingResult:
    """Train ``model`` in place, each phase from the best weights of the phase before; undo a phase without improvement.

    An interrupted training that is called again with the same arguments resumes, if it has ``checkpoints``. If the
    model is ``initialized``, its weights are validated first, as epoch 0, and kept unless a phase improves on them.
    ``first_epoch`` is added to the epochs of the history.
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
            previous_score, monitor = -inf, validator.monitor
            if result is not None:
                # The same metric on other images is another metric.
                comparable = phase.validation == chosen_by
                metrics = result.best if comparable else World.current().broadcast_from_main(partial(validator, model))
                previous_score = _score(metrics, monitor)
            previous_weights = copy.deepcopy(model.state_dict())
            numbered = partial(_numbered, phase=index, first_epoch=trained, monitor=monitor)
            rows = fit(
                model,
                phase,
                batches,
                validator,
                checkpoints=Path(folder) / f"phase-{index}",
                augment=augment,
                options=options,
                seed=seed,
                on_epoch=partial(_report, on_epoch, numbered),
            )
            scores = [_score(row, monitor) for row in rows]
            history += [numbered(row) for row in rows]
            trained += len(rows)
            if result is None or max(scores) > previous_score:
                best = numbered(rows[scores.index(max(scores))])
                result, chosen_by = TrainingResult(history, best, monitor), phase.validation
            else:
                model.load_state_dict(previous_weights)
    assert result is not None
    return result


def _report(on_epoch: Callable[[Row], None], numbered: Callable[[Row], Row], row: Row) -> None:
    on_epoch(numbered(row))


def _score(row: Row, monitor: str) -> float:
    return -inf if isnan(row[monitor]) else row[monitor]


def _numbered(row: Row, phase: int, first_epoch: int, monitor: str) -> Row:
    return {"phase": phase, **row, "epoch": first_epoch + row["epoch"], "monitor": row[monitor]}
