"""Train a sorter on synthetic scores, thesis 5.3.1 and 5.3.2."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import l1_loss

from bifocal.datasets.prefetch import prefetch
from bifocal.sorters.ranks import TrainedSorter, exact_ranks
from bifocal.sorters.synthetic import synthetic_scores
from bifocal.training.checkpoints import RunState
from bifocal.training.loop import Row, TrainingTask, run_epochs
from bifocal.training.schedules import Constant, Schedule

HELD_OUT_VECTORS, BATCH_SIZE = 10_000, 512
Draw = Callable[[int, int, Generator], Tensor]
"""``draw(count, length, generator)`` returns score vectors (count, length)."""


def rank_l1(sorter: nn.Module, scores: Tensor) -> float:
    """Mean absolute error of a sorter's ranks for scores (count, n), divided by n, as in thesis
    table 5.1."""
    error = 0.0
    with torch.no_grad():
        for batch in scores.split(BATCH_SIZE):
            error += float((sorter(batch) - exact_ranks(batch)).abs().double().sum())
    return error / scores.numel() / scores.shape[-1]


def held_out_scores(length: int, seed: int, draw: Draw = synthetic_scores) -> Tensor:
    """Return 10,000 score vectors that no training with ``seed`` uses."""
    return draw(HELD_OUT_VECTORS, length, _generator(seed, 0))


def train_sorter(
    sorter: nn.Module,
    *,
    length: int,
    batch_size: int,
    learning_rate: float,
    schedule: Schedule = Constant(),
    vectors_per_epoch: int,
    epochs: int,
    patience: int,
    tolerance: float,
    checkpoints: Path,
    seed: int,
    draw: Draw = synthetic_scores,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Train ``sorter`` in place with Adam on the L1 error of its ranks, eq. (5.1), and return the
    history.

    The weights of the epoch with the lowest held-out error, divided by n, are kept. The training
    stops early if this error did not fall by more than the fraction ``tolerance`` in ``patience``
    epochs.
    """
    device = next(sorter.parameters()).device
    optimizer = torch.optim.Adam(sorter.parameters(), learning_rate)
    state = RunState(checkpoints, {"sorter": sorter}, optimizer, eval_model=sorter)
    held_out = held_out_scores(length, seed, draw).to(device)
    task = _SorterTask(
        sorter, held_out, length, batch_size, vectors_per_epoch, patience, tolerance, seed, draw
    )
    history = run_epochs(
        task,
        state,
        epochs=epochs,
        learning_rate=learning_rate,
        schedule=schedule,
        on_epoch=on_epoch,
    )
    state.load_best(sorter)
    sorter.eval()
    return history


@dataclass
class _SorterTask(TrainingTask[Tensor]):
    sorter: nn.Module
    held_out: Tensor
    length: int
    batch_size: int
    vectors_per_epoch: int
    patience: int
    tolerance: float
    seed: int
    draw: Draw = synthetic_scores

    name = "sorter"
    monitor = "held_out_l1"
    higher_is_better = False

    def batches(self, epoch: int, first_step: int) -> tuple[int, Iterator[Tensor]]:
        count = -(-self.vectors_per_epoch // self.batch_size)
        drawn = islice(self._draw(epoch), first_step, None)
        if not self.held_out.is_cuda:
            return count, drawn
        # A thread draws batches while the GPU computes, in the same order: one generator gives all
        # numbers of an epoch.
        return count, prefetch(
            lambda step: next(drawn).pin_memory(), range(first_step, count), ahead=8, threads=1
        )

    def start_epoch(self, epoch: int) -> None:
        self.sorter.train()

    def backward(self, batch: Tensor, epoch: int, step: int) -> Tensor:
        scores, ranks = batch.to(self.held_out.device, non_blocking=True)
        width = scores.shape[1]
        loss = l1_loss(self.sorter(scores) / width, ranks / width)
        loss.backward()
        return loss.detach()

    def validate(self) -> dict[str, float]:
        self.sorter.eval()
        return {"held_out_l1": rank_l1(self.sorter, self.held_out)}

    def is_converged(self, history: Sequence[Row]) -> bool:
        errors = [row["held_out_l1"] for row in history]
        if len(errors) <= self.patience:
            return False
        return min(errors[-self.patience :]) > (1 - self.tolerance) * min(errors[: -self.patience])

    def size(self, batch: Tensor) -> int:
        return batch.shape[1]

    def _draw(self, epoch: int) -> Iterator[Tensor]:
        """Yield the scores and their ranks, (2, batch, width)."""
        sorter = self.sorter
        shortest = sorter.shortest if isinstance(sorter, TrainedSorter) else self.length
        generator = _generator(self.seed, epoch + 1)
        for start in range(0, self.vectors_per_epoch, self.batch_size):
            count = min(self.batch_size, self.vectors_per_epoch - start)
            width = int(torch.randint(shortest, self.length + 1, (), generator=generator))
            scores = self.draw(count, width, generator)
            yield torch.stack([scores, exact_ranks(scores)])


def _generator(seed: int, stream: int) -> Generator:
    """Generator of one stream of random numbers: 0 for the held-out vectors, i for the i-th
    epoch."""
    return Generator().manual_seed(seed * 2**20 + stream)
