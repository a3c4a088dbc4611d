"""What a run keeps on disk: the present state, the best weights, the batches of the epoch, and what went wrong."""

import json
import sys
from pathlib import Path
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bifocal.batch import Batch
from bifocal.checkpoint import load_checkpoint, read_tensors, save_checkpoint, write_tensors
from bifocal.progress import say
from bifocal.training.batches.base import Sampler
from bifocal.training.distributed import World
from bifocal.training.sigterm import EXIT_CODE


class Progress(NamedTuple):
    """How far a run is.

    Attributes:
        epoch, step: the next ones, from 0.
        total: sum of the epoch's losses up to here.
        history: one row of figures per finished epoch.
    """

    epoch: int
    step: int
    total: float
    history: list[dict[str, float]]


class State:
    """The state of a run, which rank 0 alone writes.

    Args:
        directory: of this run alone.
        whole: all modules that have a state: model, loss, averaged weights.
    """

    def __init__(self, directory: Path, whole: nn.Module, optimizer: Optimizer, world: World) -> None:
        self.directory, self.whole, self.optimizer, self.world = directory, whole, optimizer, world
        self.last = directory / "last.safetensors"
        self.best = directory / "best.safetensors"

    def restore(self) -> Progress:
        """Where the run was killed, or its beginning."""
        self.world.wait()
        if not self.last.is_file():
            self.world.share(self.whole)
            return Progress(0, 0, 0.0, [])
        progress = Progress(**load_checkpoint(self.last, self.whole, self.optimizer))
        if self.world.writes:
            say(f"going on from epoch {progress.epoch + 1}, step {progress.step}")
        return progress

    def save(self, progress: Progress) -> None:
        """Write all that the next step depends on."""
        if self.world.writes:
            save_checkpoint(self.last, self.whole, self.optimizer, progress._asdict())

    def save_best(self, model: nn.Module, epoch: int) -> None:
        """Keep the weights of ``model``."""
        if self.world.writes:
            write_tensors(self.best, model.state_dict(), {"epoch": epoch + 1})

    def load_best(self, model: nn.Module) -> None:
        """Put the weights that were kept into ``model``."""
        self.world.wait()
        model.load_state_dict(read_tensors(self.best)[0])

    def batches(self, sampler: Sampler, epoch: int) -> list[Tensor]:
        """Those of the epoch; the same ones if it had begun when the run was killed."""
        path = self.directory / "batches.safetensors"
        self.world.wait()
        if path.is_file():
            tensors, notes = read_tensors(path)
            if notes["epoch"] == epoch:
                return list(tensors["rows"].split(tensors["sizes"].tolist()))
        batches = list(sampler(epoch))
        self.world.wait()
        if self.world.writes:
            sizes = torch.tensor([len(rows) for rows in batches])
            write_tensors(path, {"rows": torch.cat(batches), "sizes": sizes}, {"epoch": epoch})
        return batches

    def terminate(self, progress: Progress) -> NoReturn:
        """After SIGTERM: save, and end as if the signal had ended the process."""
        self.save(progress)
        if self.world.writes:
            say(f"SIGTERM: saved at epoch {progress.epoch + 1}, step {progress.step}; start again to go on")
        self.world.wait()
        sys.exit(EXIT_CODE)

    def refuse(self, value: Tensor, progress: Progress, batch: Batch) -> NoReturn:
        """The loss is no number: leave the state and the batch to look at, and say where they are.

        Raises:
            FloatingPointError: always.
        """
        state, images = (self.directory / f"not_a_number.{ending}" for ending in ("safetensors", "json"))
        where = {"epoch": progress.epoch + 1, "step": progress.step}
        if self.world.writes:
            save_checkpoint(state, self.whole, self.optimizer, progress._asdict())
            images.write_text(json.dumps(where | {"images": batch.image_ids}))
        raise FloatingPointError(
            f"the loss is {value.item()} at epoch {where['epoch']}, step {where['step']}; its images are in {images} "
            f"and the state in {state}: lower the learning rate or clip_norm, or look at the features of these images"
        )
