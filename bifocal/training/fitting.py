"""Training of an embedding with any model and any loss, in phases, one after another."""

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf, isnan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Generator, Tensor, nn
from torch.optim.swa_utils import AveragedModel

from bifocal.datasets.prefetch import prefetch
from bifocal.models.batch import Batch
from bifocal.training.augmentations import Augment, Augmentation
from bifocal.training.batches.base import Batches, PreparedBatches
from bifocal.training.checkpoints import RunState
from bifocal.training.distributed import World
from bifocal.training.gradients import backward
from bifocal.training.inputs import TrainingInputs
from bifocal.training.loop import Row, TrainingTask, numbered_row, report_row, run_epochs
from bifocal.training.optimizers import (
    Phase,
    StepOptions,
    apply_freezing,
    average_weights,
    build_optimizer,
    check_module_names,
    check_phases,
    limit_weight_decay,
    parameter_groups,
)
from bifocal.training.validators import Validate, Validation


@dataclass(frozen=True)
class TrainingPhase(Phase):
    """Batches, loss and learning rate of some epochs.

    Args:
        loss: ``loss(scores, matches)``; its parameters are trained, too, and its
            ``learned_values()`` are columns of the history.
        augmentations: random changes of each batch, which depend on seed, epoch and step.
        validator: choice of the metric that chooses the epoch; None for that of the batches.
    """

    batches: Batches
    loss: nn.Module
    augmentations: Sequence[Augmentation] = ()
    validator: Validation | None = None

    @property
    def validation(self) -> Validation:
        """Choice of the validation metric, and of the images that it is computed on."""
        return self.validator or self.batches.validator()


@dataclass(frozen=True)
class FitOptions(StepOptions):
    """Options that all phases of a training share.

    Args:
        decay_biases: whether weight decay changes biases and norms, too, and not only matrices.
        ema_decay: decay of the averaged weights, which are validated and kept; 0 for none.
    """

    decay_biases: bool = True
    ema_decay: float = 0.0


def fit(
    model: nn.Module,
    phase: TrainingPhase,
    batches: PreparedBatches,
    validate: Validate,
    *,
    checkpoints: Path,
    augment: Sequence[Augment] = (),
    options: FitOptions = FitOptions(),
    seed: int = 0,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Train ``model`` in place, load the weights of its best epoch, and return the history, one row
    per epoch.

    ``batches``, ``validate`` and ``augment`` are prepared parts of the phase. Resume, SIGTERM and
    history are as in ``run_epochs``. If ``torch.distributed`` is initialized, its processes share
    every batch, and only rank 0 writes; this needs a ``TwoTower``.
    """
    check_module_names(model, phase.frozen_until)
    batches.begin(checkpoints)
    World.current().barrier()  # machines read their data at different speeds, before the first step
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = phase.loss.to(next(model.parameters()).device)
    ema = average_weights(model, options.ema_decay) if options.ema_decay else None
    modules = {"model": model, "loss": loss} | ({"ema": ema} if ema else {})
    groups = parameter_groups(model, phase.learning_rate_factors)
    own = [{"params": list(loss.parameters())}] if any(True for _ in loss.parameters()) else []
    if not options.decay_biases:
        groups = limit_weight_decay(groups, options.optimizer)
    groups += limit_weight_decay(own, options.optimizer)
    built = build_optimizer(options.optimizer, groups, phase.learning_rate)
    state = RunState(checkpoints, modules, built, model if ema is None else ema.module)
    history = run_epochs(
        _EmbeddingTask(state, model, phase, batches, validate, augment, ema, options, seed),
        state,
        epochs=phase.epochs,
        learning_rate=phase.learning_rate,
        schedule=phase.schedule,
        max_grad_norm=options.max_grad_norm,
        checkpoint_every_seconds=options.checkpoint_every_seconds,
        on_epoch=on_epoch,
    )
    loss.eval()
    state.load_best(model)
    for parameter in trainable:  # the modules that this phase froze may train in the next
        parameter.requires_grad_(True)
    return history


def learned_values(loss: nn.Module) -> dict[str, float]:
    """Return the values that a loss learns, such as its temperature, as ``loss.temperature``."""
    return {
        f"loss.{name}.{value}" if name else f"loss.{value}": number
        for name, module in loss.named_modules()
        if hasattr(module, "learned_values")
        for value, number in module.learned_values().items()
    }


@dataclass
class _EmbeddingTask(TrainingTask[Batch]):
    state: RunState
    model: nn.Module
    phase: TrainingPhase
    prepared: PreparedBatches
    validation: Validate
    augment: Sequence[Augment]
    ema: AveragedModel | None
    options: FitOptions
    seed: int

    def __post_init__(self) -> None:
        self.monitor = self.phase.validation.monitor
        self.shown = ("caption_retrieval.R@1", "image_retrieval.R@1", self.monitor)
        self.parameters = [*self.model.parameters(), *self.phase.loss.parameters()]
        self.world, self.device = self.state.world, self.parameters[0].device

    def batches(self, epoch: int, first_step: int) -> tuple[int, Iterable[Batch]]:
        rows = self.state.batches(self.prepared.sampler, epoch)
        read = partial(self.prepared.source.batch, rank=self.world.rank, world_size=self.world.size)
        return len(rows), prefetch(read, rows[first_step:], ahead=1, threads=1)

    def start_epoch(self, epoch: int) -> None:
        apply_freezing(self.model, self.phase.frozen_until, epoch)
        self.phase.loss.train()

    def backward(self, batch: Batch, epoch: int, step: int) -> Tensor:
        seed = ((self.seed * 10_007 + epoch) * 1_000_003 + step * self.world.size) % 2**63
        # Each process changes its own part of the batch.
        generator = Generator().manual_seed((seed + self.world.rank) % 2**63)
        for augment in self.augment:
            batch = augment(batch, generator)
        value = backward(
            self.model,
            self.phase.loss,
            batch.to(self.device),
            precision=self.options.precision,
            micro_batch_size=self.options.micro_batch_size,
            seed=seed,
            world=self.world,
        )
        self.world.average_gradients(self.parameters)
        return value

    def after_step(self) -> None:
        self.world.average_statistics(self.model)
        if self.ema is not None:
            self.ema.update_parameters(self.model)

    def validate(self) -> dict[str, float]:
        return self.validation(self.state.eval_model) | learned_values(self.phase.loss)

    def size(self, batch: Batch) -> int:
        return len(batch.image_ids)

    def describe(self, batch: Batch) -> dict[str, Any]:
        return {"images": batch.image_ids}


@dataclass(frozen=True)
class TrainingResult:
    """History, the row of the best epoch, from 1 or 0 for the initialization, and the metric that
    chose it."""

    history: list[Row]
    best: Row
    monitor: str


def train_phases(
    model: nn.Module,
    phases: Sequence[TrainingPhase],
    inputs: TrainingInputs,
    *,
    checkpoints: Path | None = None,
    options: FitOptions = FitOptions(),
    seed: int = 0,
    initialized: bool = False,
    first_epoch: int = 0,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> TrainingResult:
    """Train ``model`` in place, each phase from the best weights of the phase before; undo a phase
    without improvement.

    An interrupted training that is called again with the same arguments resumes, if it has
    ``checkpoints``. If the model is ``initialized``, its weights are validated first, as epoch 0,
    and kept unless a phase improves on them. ``first_epoch`` is added to the epochs of the history.
    """
    check_phases(model, phases)
    # Prepare all phases before the first one trains.
    prepared = [
        phase.batches.prepare(inputs, model=model, loss=phase.loss, seed=seed + index)
        for index, phase in enumerate(phases)
    ]
    augments = [
        [augmentation.prepare(inputs) for augmentation in phase.augmentations] for phase in phases
    ]
    validators = [phase.validation.prepare(inputs) for phase in phases]
    history: list[Row] = []
    result: TrainingResult | None = None
    if initialized:
        start = {"epoch": 0, **World.current().broadcast_from_main(lambda: validators[0](model))}
        history.append(numbered_row(start, 0, first_epoch, phases[0].validation.monitor))
        result = TrainingResult(history, history[0], phases[0].validation.monitor)
    trained, chosen_by = first_epoch, phases[0].validation
    with TemporaryDirectory() if checkpoints is None else nullcontext(checkpoints) as folder:
        for index, (phase, batches, augment, validate) in enumerate(
            zip(phases, prepared, augments, validators, strict=True)
        ):
            previous_score, monitor = -inf, phase.validation.monitor
            if result is not None:
                # The same metric on other images is another metric.
                comparable = phase.validation == chosen_by
                metrics = (
                    result.best
                    if comparable
                    else World.current().broadcast_from_main(partial(validate, model))
                )
                previous_score = _score(metrics, monitor)
            previous_weights = copy.deepcopy(model.state_dict())
            numbered = partial(numbered_row, phase=index, first_epoch=trained, monitor=monitor)
            rows = fit(
                model,
                phase,
                batches,
                validate,
                checkpoints=Path(folder) / f"phase-{index}",
                augment=augment,
                options=options,
                seed=seed,
                on_epoch=partial(report_row, on_epoch, numbered),
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


def _score(row: Row, monitor: str) -> float:
    return -inf if isnan(row[monitor]) else row[monitor]
