"""How far are predicted ranks from true ranks (thesis table 5.1)?

    python -m benchmarks run quality.sorters [FOLDER ...]

L1 error of ranks divided by n, on 10,000 held-out vectors of length 100: drawn as in the text of
the thesis, and as in the authors' code, which table 5.1 was measured on. Each FOLDER is a sorter of
the stage pretrain_sorter; components/pretrain_sorter/README.md gives the error by training budget.
"""

import sys

import torch
from torch import Generator, Tensor

from benchmarks.common import Report
from benchmarks.handcrafted_sorters import OURS, sorters
from bifocal.training.pretraining.sorter import held_out_scores, rank_l1

MAX_ERROR, SEEDS = 0.0005, 4
THESIS = {"PairwiseSorter": 0.0350, "CNNSorter": 0.0120, "LSTMLargeSorter": 0.0033}
"""Table 5.1."""


def public_scores(count: int, length: int, generator: Generator) -> Tensor:
    """Draw vectors (count, length) as the authors' code does
    (github.com/technicolor-research/sodeep, dataset.py).

    Of ten kinds with equal probability, three are uniform over [-1, 1]. The others are standard
    normal; evenly spaced between two numbers of [0, 1], in order or shuffled; uniform before a
    random place and normal after it, twice; evenly spaced and shuffled before it and uniform after
    it; evenly spaced over [-1, 1], ascending.
    """
    uniform = torch.rand(count, length, generator=generator) * 2 - 1
    normal = torch.randn(count, length, generator=generator)
    ends, place = torch.rand(count, 2, generator=generator), torch.arange(length)
    order = torch.rand(count, length, generator=generator)
    split = torch.randint(1, length + 1, (count, 1), generator=generator)
    first = place < split
    # The place of each number among those of the first part.
    shuffled = torch.where(first, order, 2.0).argsort(dim=1).argsort(dim=1)

    def even(position: Tensor) -> Tensor:
        return torch.lerp(ends[:, :1], ends[:, 1:], position)

    mixed = torch.where(first, uniform, normal)
    kinds = (
        uniform,
        uniform,
        uniform,
        normal,
        even(place / length),
        even(order.argsort(dim=1) / length),
        mixed,
        mixed,
        torch.where(first, even(shuffled / split), uniform),
        (2 * place / length - 1).expand(count, length),
    )
    choice = torch.randint(len(kinds), (count,), generator=generator)
    return torch.stack(kinds)[choice, torch.arange(count)]


def main() -> None:
    """Report the error of each sorter."""
    torch.set_num_threads(1)
    report = Report("quality.sorters")
    for name, sorter in sorters(sys.argv[1:]).items():
        length = getattr(sorter, "length", 100)
        report.add(
            name,
            rank_l1(sorter, held_out_scores(length, seed=0)),
            at_most=MAX_ERROR if name == OURS else None,
        )
        seeds = (torch.Generator().manual_seed(seed) for seed in range(SEEDS))
        errors = [rank_l1(sorter, public_scores(10_000, length, seed)) for seed in seeds]
        published = min(THESIS.values()) if name == OURS else THESIS.get(name)
        reference = "" if published is None else f"; table 5.1: {published:.4f}"
        report.add(
            f"{name}, vectors of the authors' code",
            sum(errors) / SEEDS,
            reference=f"{min(errors):.4f} to {max(errors):.4f} over {SEEDS} seeds{reference}",
        )
    report.write()


if __name__ == "__main__":
    main()
