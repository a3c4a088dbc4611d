"""Checkpoints of a training: exact resume, SIGTERM, and the hook that copies them elsewhere."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bifocal.durable import write_json
from bifocal.progress import log_line
from bifocal.serialization import read_tensors, write_tensors
from bifocal.training.distributed import World

EXIT_CODE = 128 + signal.SIGTERM


@contextmanager
def sigterm_guard() -> Iterator[Callable[[], bool]]:
    """Hold back SIGTERM in the context, in the main thread only; yield a function that says whether
    it has arrived."""
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield received.is_set
        return
    previous = signal.signal(signal.SIGTERM, lambda number, frame: received.set())
    try:
        yield received.is_set
    finally:
        signal.signal(signal.SIGTERM, previous)


class CheckpointHook(Protocol):
    """Called on rank 0 after each checkpoint, between two steps: no checkpoint file changes during
    the call."""

    def __call__(self, *, is_last: bool) -> None:
        """Handle a new checkpoint; ``is_last``: the process exits after it, because SIGTERM
        arrived."""


_hook: ContextVar[CheckpointHook | None] = ContextVar("checkpoint_hook", default=None)


@contextmanager
def checkpoint_hook(hook: CheckpointHook) -> Iterator[None]:
    """Call ``hook`` after each checkpoint of each training in this context."""
    token = _hook.set(hook)
    try:
        yield
    finally:
        _hook.reset(token)


def call_checkpoint_hook(*, is_last: bool) -> None:
    """Call the hook of the current context, if there is one."""
    hook = _hook.get()
    if hook is not None:
        hook(is_last=is_last)


class Progress(NamedTuple):
    """Position of a run: next epoch and step, from 0, sum of the epoch's losses, and a row per
    finished epoch."""

    epoch: int
    step: int
    total: float
    history: list[dict[str, float]]


class RunState:
    """State of a run in its own directory, which only rank 0 reads and writes; ``modules`` are all
    with a state.

    The best weights of ``eval_model``, by default of all modules, are kept.
    """

    def __init__(
        self,
        directory: Path,
        modules: Mapping[str, nn.Module],
        optimizer: Optimizer,
        eval_model: nn.Module | None = None,
    ) -> None:
        self.directory, self.modules, self.optimizer = (
            directory,
            nn.ModuleDict(dict(modules)),
            optimizer,
        )
        self.eval_model = self.modules if eval_model is None else eval_model
        self.world = World.current()
        self.last = directory / "last.safetensors"
        self.best = directory / "best.safetensors"

    def restore(self) -> Progress:
        """Load the last checkpoint, if there is one, and return the position of the run."""
        if not self.world.broadcast_from_main(self.last.is_file):
            self.world.broadcast_parameters(self.modules)
            return Progress(0, 0, 0.0, [])
        tensors, notes = self.world.broadcast_tensors(lambda: read_tensors(self.last))
        load_checkpoint(tensors, self.modules, self.optimizer)
        progress = Progress(**notes)
        if self.world.is_main:
            log_line(f"resuming at epoch {progress.epoch + 1}, step {progress.step}")
        return progress

    def save(self, progress: Progress, *, is_last: bool = False) -> None:
        """Write all that the next step depends on, and call the hook; ``is_last``: the process
        exits after it."""
        if self.world.is_main:
            save_checkpoint(self.last, self.modules, self.optimizer, progress._asdict())
            call_checkpoint_hook(is_last=is_last)

    def save_best(self, epoch: int) -> None:
        if self.world.is_main:
            write_tensors(self.best, self.eval_model.state_dict(), {"epoch": epoch + 1})

    def load_best(self, model: nn.Module) -> None:
        model.load_state_dict(self.world.broadcast_tensors(lambda: read_tensors(self.best))[0])

    def batches(self, sampler: Callable[[int], Sequence[Tensor]], epoch: int) -> list[Tensor]:
        """Return the rows of each batch of an epoch; a resumed epoch keeps the batches that it
        started with.

        Only rank 0 draws them: samplers that mine with the model could differ between GPUs in the
        last bit.
        """
        path = self.directory / "batches.safetensors"

        def read() -> tuple[dict[str, Tensor], dict[str, Any]]:
            if path.is_file():
                tensors, notes = read_tensors(path)
                if notes["epoch"] == epoch:
                    return tensors, notes
            batches = list(sampler(epoch))
            sizes = torch.tensor([len(rows) for rows in batches])
            write_tensors(path, {"rows": torch.cat(batches), "sizes": sizes}, {"epoch": epoch})
            return read_tensors(path)

        tensors, _ = self.world.broadcast_tensors(read)
        return list(tensors["rows"].split(tensors["sizes"].tolist()))

    def terminate(self, progress: Progress) -> NoReturn:
        """Save the state after SIGTERM, and exit with the code of that signal."""
        self.save(progress, is_last=True)
        if self.world.is_main:
            log_line(
                f"SIGTERM: saved at epoch {progress.epoch + 1}, step {progress.step}; start "
                "again to resume"
            )
        self.world.barrier()
        sys.exit(EXIT_CODE)

    def abort_on_nonfinite(
        self, value: float, progress: Progress, batch: Mapping[str, Any]
    ) -> NoReturn:
        """Write the state and a description of the batch, as JSON can hold it, and raise
        ``FloatingPointError``."""
        state, report = (
            self.directory / f"nonfinite_loss.{suffix}" for suffix in ("safetensors", "json")
        )
        position = {"epoch": progress.epoch + 1, "step": progress.step}
        if self.world.is_main:
            save_checkpoint(state, self.modules, self.optimizer, progress._asdict())
            write_json(report, position | dict(batch))
        raise FloatingPointError(
            f"the loss is {value} at epoch {position['epoch']}, step {position['step']}; the "
            f"batch is described in {report} and the state is in {state}: lower the learning "
            "rate or max_grad_norm, or check the inputs of this batch"
        )


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: Optimizer, progress: Mapping[str, Any]
) -> None:
    """Write everything that the next step depends on; ``progress`` is the position of the run, as
    JSON can hold it."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for parameter, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{parameter}.{name}": tensor for name, tensor in state.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    write_tensors(path, tensors, progress)


def load_checkpoint(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: Optimizer) -> None:
    """Restore the model, the optimizer and the random state from the tensors of
    ``save_checkpoint``."""
    model.load_state_dict(
        {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    )
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, parameter, key = name.split(".", 2)
            state.setdefault(int(parameter), {})[key] = tensor
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])
