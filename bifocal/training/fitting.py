"""Training of a visual-semantic embedding with any model and any loss."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Generator, Tensor, nn
from torch.optim.swa_utils import AveragedModel

from bifocal.datasets.prefetch import prefetch
from bifocal.models.batch import Batch, BatchSource
from bifocal.training.augmentations.base import Augment
from bifocal.training.batches.base import Sampler
from bifocal.training.checkpoints.state import RunState
from bifocal.training.freezing import FreezeSchedule, apply_freezing, check_module_names
from bifocal.training.gradients import backward
from bifocal.training.loop import Row, TrainingTask, run_epochs
from bifocal.training.optimizers import build_optimizer, limit_weight_decay, parameter_groups
from bifocal.training.precision import Precision
from bifocal.training.schedules import Constant, Schedule
from bifocal.training.validators.base import Validator
from bifocal.training.weight_averaging import average_weights


def fit(
    model: nn.Module,
    loss: nn.Module,
    batches: BatchSource,
    validator: Validator,
    *,
    sampler: Sampler,
    augment: Sequence[Augment] = (),
    checkpoints: Path,
    epochs: int,
    optimizer: Any = "Adam",
    decay_biases: bool = True,
    learning_rate: float = 0.001,
    schedule: Schedule = Constant(),  # noqa: B008 - immutable
    max_grad_norm: float | None = 2.0,
    frozen_until: FreezeSchedule | None = None,
    learning_rate_factors: Mapping[str, float] | None = None,
    ema_decay: float = 0.0,
    precision: Precision = "float32",
    micro_batch_size: int | None = None,
    checkpoint_every_seconds: float = 300.0,
    seed: int = 0,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Train ``model`` in place, load the weights of its best epoch, and return the history, one row per epoch.

    ``loss(scores, matches)`` compares the scores of ``model(batch)``; its parameters are trained, too, and its
    ``learned_values()`` are columns of the history. ``validator`` names the metric that chooses the epoch. Resume,
    SIGTERM and history are as in ``run_epochs``. If ``torch.distributed`` is initialized, its processes share every
    batch, and only rank 0 writes; this, and ``micro_batch_size`` (images, and captions, that are encoded at a time),
    need a ``TwoTower``.

    ``optimizer`` refers to a class of ``torch.optim``; without ``decay_biases`` its weight decay changes only matrices.
    ``frozen_until`` freezes modules in the first epochs, None: in all; ``learning_rate_factors`` multiply their
    learning rates. ``max_grad_norm`` is an l2 norm. With ``ema_decay``, the averaged weights are validated and kept.
    ``precision`` is the precision of matrix products; weights, sums and the loss stay float32.
    ``checkpoint_every_seconds`` is the least time between two checkpoints inside an epoch. ``augment`` depends on
    ``seed``, epoch and step.
    """
    frozen_until = frozen_until or {}
    check_module_names(model, frozen_until)
    ema = average_weights(model, ema_decay) if ema_decay else None
    eval_model = model if ema is None else ema.module
    modules = {"model": model, "loss": loss.to(next(model.parameters()).device)} | ({"ema": ema} if ema else {})
    groups = parameter_groups(model, learning_rate_factors or {})
    parameters = [*model.parameters(), *loss.parameters()]
    own = [{"params": list(loss.parameters())}] if any(True for _ in loss.parameters()) else []
    if not decay_biases:
        groups = limit_weight_decay(groups, optimizer)
    built = build_optimizer(optimizer, [*groups, *limit_weight_decay(own, optimizer)], learning_rate)
    state = RunState(checkpoints, modules, built, eval_model)
    task = _EmbeddingTask(
        state=state,
        model=model,
        loss=loss,
        parameters=parameters,
        ema=ema,
        source=batches,
        sampler=sampler,
        augment=augment,
        validator=validator,
        frozen_until=frozen_until,
        precision=precision,
        micro_batch_size=micro_batch_size,
        seed=seed,
    )
    history = run_epochs(
        task,
        state,
        epochs=epochs,
        learning_rate=learning_rate,
        schedule=schedule,
        max_grad_norm=max_grad_norm,
        checkpoint_every_seconds=checkpoint_every_seconds,
        on_epoch=on_epoch,
    )
    loss.eval()
    state.load_best(model)
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
    loss: nn.Module
    parameters: list[nn.Parameter]
    ema: AveragedModel | None
    source: BatchSource
    sampler: Sampler
    augment: Sequence[Augment]
    validator: Validator
    frozen_until: FreezeSchedule
    precision: Precision
    micro_batch_size: int | None
    seed: int

    def __post_init__(self) -> None:
        self.monitor = self.validator.monitor
        self.shown = ("caption_retrieval.R@1", "image_retrieval.R@1", self.monitor)
        self.world, self.device = self.state.world, self.parameters[0].device

    def batches(self, epoch: int, first_step: int) -> tuple[int, Iterable[Batch]]:
        rows = self.state.batches(self.sampler, epoch)
        read = partial(self.source.batch, rank=self.world.rank, world_size=self.world.size)
        return len(rows), prefetch(read, rows[first_step:], ahead=1, threads=1)

    def start_epoch(self, epoch: int) -> None:
        apply_freezing(self.model, self.frozen_until, epoch)
        self.loss.train()

    def backward(self, batch: Batch, epoch: int, step: int) -> Tensor:
        seed = ((self.seed * 10_007 + epoch) * 1_000_003 + step * self.world.size) % 2**63
        # Each process changes its own part of the batch.
        generator = Generator().manual_seed((seed + self.world.rank) % 2**63)
        for augment in self.augment:
            batch = augment(batch, generator)
        value = backward(
            self.model,
            self.loss,
            batch.to(self.device),
            precision=self.precision,
            micro_batch_size=self.micro_batch_size,
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
        return self.validator(self.state.eval_model) | learned_values(self.loss)

    def size(self, batch: Batch) -> int:
        return len(batch.image_ids)

    def describe(self, batch: Batch) -> dict[str, Any]:
        return {"images": batch.image_ids}
