"""The only training loop: ``run_epochs`` trains a ``TrainingTask``."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from bifocal.progress import log_line, track
from bifocal.training.checkpoints import Progress, RunState, sigterm_guard
from bifocal.training.schedules import Constant, Schedule

T = TypeVar("T")
Row = dict[str, float]


class TrainingTask(ABC, Generic[T]):
    """Targets, loss and validation for one kind of training; ``T`` is its batch type.

    ``monitor`` is the metric of ``validate`` that chooses the best epoch; None: the last epoch is
    kept. ``name``, and the metrics ``shown``, None for all, are in progress lines.
    """

    name: str = "training"
    monitor: str | None = None
    higher_is_better: bool = True
    shown: Sequence[str] | None = None

    @abstractmethod
    def batches(self, epoch: int, first_step: int) -> tuple[int, Iterable[T]]:
        """Return the number of steps of an epoch, and its batches from ``first_step`` on; both
        count from 0.

        A resumed epoch must get the same batches. Random numbers must come from torch's global
        generator, whose state is in the checkpoint, or from a generator that depends only on the
        epoch.
        """

    @abstractmethod
    def start_epoch(self, epoch: int) -> None:
        """Put the modules into training mode; also called when an epoch is resumed."""

    @abstractmethod
    def backward(self, batch: T, epoch: int, step: int) -> Tensor:
        """Compute the loss of a batch, add its gradients to the parameters, and return it
        detached."""

    def after_step(self) -> None:
        """Update what depends on the new parameters, such as averaged weights."""
        return

    def validate(self) -> dict[str, float]:
        """Return the metrics at the end of an epoch; called only on rank 0."""
        return {}

    def is_converged(self, history: Sequence[Row]) -> bool:
        """Whether to stop before the next epoch."""
        return False

    def size(self, batch: T) -> int:
        """Number of examples in a batch, for the throughput."""
        return 1

    def describe(self, batch: T) -> dict[str, Any]:
        """Describe a batch whose loss is not finite, as JSON can hold it."""
        return {}


def run_epochs(
    task: TrainingTask[T],
    state: RunState,
    *,
    epochs: int,
    learning_rate: float,
    schedule: Schedule = Constant(),
    max_grad_norm: float | None = None,
    checkpoint_every_seconds: float = inf,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Train until ``epochs`` epochs are done, and return the history, one row per epoch.

    An interrupted run that is called again with the same arguments resumes at its last checkpoint,
    and ends with the weights of an uninterrupted run (bit for bit on a CPU). SIGTERM writes a
    checkpoint after the current step and exits with 143. If the task has a monitor,
    ``state.load_best`` gives the weights of its best epoch.

    ``learning_rate`` is multiplied by ``schedule(epoch, epochs)`` before every step, and by the
    "factor" of a parameter group. ``checkpoint_every_seconds`` is the least time between two
    checkpoints inside an epoch. A row has epoch (from 1), its number of steps, loss (mean over the
    steps), learning_rate (of the last step), and the metrics of ``task.validate``.
    """
    world = state.world
    parameters = [
        parameter for group in state.optimizer.param_groups for parameter in group["params"]
    ]
    device = parameters[0].device
    first_epoch, first_step, total, history = state.restore()
    start = saved = time.monotonic()
    examples, status = 0, _Status()

    with sigterm_guard() as sigterm_received:
        for epoch in range(first_epoch, epochs):
            if task.is_converged(history):
                break
            count, batches = task.batches(epoch, first_step)
            task.start_epoch(epoch)
            steps: Iterable[tuple[int, T]] = enumerate(batches, start=first_step)
            if world.is_main:
                title = f"{task.name}, epoch {epoch + 1}/{epochs}"
                steps = track(
                    steps, title, total=count, done=first_step, status=lambda: status.text
                )
            for step, batch in steps:
                rate = learning_rate * schedule(epoch + step / count, epochs)
                for group in state.optimizer.param_groups:
                    group["lr"] = rate * group.get("factor", 1.0)
                state.optimizer.zero_grad()
                # One synchronization with the GPU per step, before the optimizer's step.
                value = task.backward(batch, epoch, step).item()
                if not isfinite(value):
                    state.abort_on_nonfinite(
                        value, Progress(epoch, step, total, history), task.describe(batch)
                    )
                if max_grad_norm is not None:
                    nn.utils.clip_grad_norm_(parameters, max_grad_norm)
                state.optimizer.step()
                task.after_step()
                total += value
                examples += task.size(batch)
                pace = examples / (time.monotonic() - start)
                status.text = (
                    f"loss {total / (step + 1):.4f}, learning rate {rate:.3g}, {pace:.0f} "
                    "examples/s"
                )
                if world.any_rank(sigterm_received(), device):
                    state.terminate(Progress(epoch, step + 1, total, history))
                if time.monotonic() - saved >= checkpoint_every_seconds and step + 1 < count:
                    state.save(Progress(epoch, step + 1, total, history))
                    saved = time.monotonic()

            # A run that stopped after the last step of an epoch has no step left, so compute the
            # rate again.
            rate = learning_rate * schedule(epoch + (count - 1) / count, epochs)
            row = {"epoch": epoch + 1, "steps": count, "loss": total / count, "learning_rate": rate}
            row |= world.broadcast_from_main(task.validate)
            if task.monitor is not None and _is_best(task, row, history):
                state.save_best(epoch)
            history.append(row)
            first_step, total = 0, 0.0
            state.save(Progress(epoch + 1, 0, 0.0, history))
            saved = time.monotonic()
            if world.is_main:
                each = (time.monotonic() - start) / (epoch + 1 - first_epoch)
                left = f"about {each * (epochs - epoch - 1):,.0f} s left"
                summary = f"{_summary(row, task.shown)}; {left}"
                log_line(f"{task.name}, epoch {epoch + 1}/{epochs}: {summary}")
                on_epoch(row)
            if world.any_rank(sigterm_received(), device):
                state.terminate(Progress(epoch + 1, 0, 0.0, history))
    return history


def numbered_row(row: Row, phase: int, first_epoch: int, monitor: str) -> Row:
    """Return a row of a phase as a row of the history of all phases."""
    return {"phase": phase, **row, "epoch": first_epoch + row["epoch"], "monitor": row[monitor]}


def report_row(on_epoch: Callable[[Row], None], numbered: Callable[[Row], Row], row: Row) -> None:
    """Call ``on_epoch`` with a row of a phase as a row of the history."""
    on_epoch(numbered(row))


@dataclass
class _Status:
    """Text that follows the progress bar."""

    text: str = ""


def _is_best(task: TrainingTask[T], row: Row, history: Sequence[Row]) -> bool:
    assert task.monitor is not None
    sign = 1 if task.higher_is_better else -1
    # NaN, such as the rank correlation of constant scores, is worse than any number. The first
    # epoch is always best.
    earlier = [sign * past[task.monitor] for past in history if not isnan(past[task.monitor])]
    return not history or sign * row[task.monitor] > max(earlier, default=-inf)


def _summary(row: Row, shown: Sequence[str] | None) -> str:
    metrics = [name for name in row if name not in ("epoch", "loss", "learning_rate")]
    names = ["loss", *(name for name in metrics if shown is None or name in shown)]
    return ", ".join(
        f"{name.replace('_', ' ').replace('.', ' ')} {row[name]:.4g}" for name in names
    )
