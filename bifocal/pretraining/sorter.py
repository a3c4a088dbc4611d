"""Training a sorter on synthetic scores, thesis 5.3.1 and 5.3.2."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import l1_loss

from bifocal.checkpoint import load_checkpoint, read_tensors, save_checkpoint, write_tensors
from bifocal.sorters.lstm import LSTMSorter
from bifocal.sorters.ranks import exact_ranks
from bifocal.sorters.synthetic import synthetic_scores

HELD_OUT_VECTORS = 10_000


@dataclass(frozen=True)
class Epoch:
    """One row of the history; L1 errors of ranks divided by n, as in table 5.1."""

    epoch: int
    learning_rate: float
    training_l1: float
    held_out_l1: float


def rank_l1(sorter: nn.Module, scores: Tensor, batch_size: int = 512) -> float:
    """Mean absolute error of a sorter's ranks, divided by n: the unit of table 5.1.

    Shape:
        scores (count, n).
    """
    error = 0.0
    with torch.no_grad():
        for batch in scores.split(batch_size):
            error += float((sorter(batch) - exact_ranks(batch)).abs().double().sum())
    return error / scores.numel() / scores.shape[-1]


def held_out_scores(length: int, seed: int) -> Tensor:
    """The (10,000, length) vectors that no training sees: epochs count from 1, and this is number 0."""
    return synthetic_scores(HELD_OUT_VECTORS, length, _generator(seed, epoch=0))


def pretrain(
    sorter: nn.Module,
    *,
    length: int,
    batch_size: int,
    learning_rate: float,
    halve_every: int,
    vectors_per_epoch: int,
    epochs: int,
    patience: int,
    tolerance: float,
    seed: int,
    checkpoints: Path,
) -> Iterator[Epoch]:
    """Train ``sorter`` with Adam on the L1 error of its ranks, eq. (5.1); yield every epoch as it ends.

    When the last one is taken, ``sorter`` holds the weights of the epoch with the least held-out error.

    Args:
        length: scores per vector; an ``LSTMSorter`` is given batches of all of its lengths.
        halve_every: epochs after which the learning rate is halved.
        vectors_per_epoch: drawn anew for every epoch.
        epochs: at most; fewer if the loss is stable.
        patience: epochs in which the held-out error must fall by more than ``tolerance``, a fraction of itself.
        seed: of the vectors; the same one gives the same weights on the same machine.
        checkpoints: a directory of this run alone, written after every epoch. A run that was killed and is called
            again goes on from it and yields its epochs again: it ends with the weights that an undisturbed one
            has (on a CPU, bit for bit).
    """
    device = next(sorter.parameters()).device
    held_out = held_out_scores(length, seed).to(device)
    shortest = sorter.shortest if isinstance(sorter, LSTMSorter) else length
    adam = torch.optim.Adam(sorter.parameters(), learning_rate)
    last, best = checkpoints / "last.safetensors", checkpoints / "best.safetensors"
    history: list[Epoch] = []
    if last.is_file():
        history = [Epoch(**row) for row in load_checkpoint(last, sorter, adam)["history"]]
        yield from history
    while len(history) < epochs and not _is_stable(history, patience, tolerance):
        number = len(history) + 1
        generator = _generator(seed, number)
        rate = learning_rate * 0.5 ** (len(history) // halve_every)
        adam.param_groups[0]["lr"] = rate
        sorter.train()
        total = torch.zeros((), device=device)
        for start in range(0, vectors_per_epoch, batch_size):
            count = min(batch_size, vectors_per_epoch - start)
            width = int(torch.randint(shortest, length + 1, (), generator=generator))
            scores = synthetic_scores(count, width, generator).to(device)
            loss = l1_loss(sorter(scores) / width, exact_ranks(scores) / width)
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += loss.detach() * count
        sorter.eval()
        error = rank_l1(sorter, held_out)
        if error < min((epoch.held_out_l1 for epoch in history), default=float("inf")):
            write_tensors(best, sorter.state_dict(), {"epoch": number})
        history.append(Epoch(number, rate, total.item() / vectors_per_epoch, error))
        save_checkpoint(last, sorter, adam, {"history": [asdict(epoch) for epoch in history]})
        yield history[-1]
    sorter.load_state_dict(read_tensors(best)[0])
    sorter.eval()


def _generator(seed: int, epoch: int) -> Generator:
    return Generator().manual_seed(seed * 2**20 + epoch)


def _is_stable(history: list[Epoch], patience: int, tolerance: float) -> bool:
    errors = [epoch.held_out_l1 for epoch in history]
    return len(errors) > patience and min(errors[-patience:]) > (1 - tolerance) * min(errors[:-patience])
