"""Can a model lower the loss of a sorter without a better ranking (thesis, section 5.6)?

    python -m benchmarks run robustness.adversary [FOLDER ...]

The scores are free parameters. Adam lowers the rank that the sorter predicts for the first score of each row. Ranks are
divided by n. The gap is the fall of the predicted rank minus the fall of the actual rank: a sorter with a large gap
rewards a model that does not rank better. Each FOLDER is a sorter of the stage pretrain_sorter.
"""

import sys
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.common import Report
from benchmarks.handcrafted_sorters import OURS, sorters
from bifocal.sorters.ranks import exact_ranks

LENGTH = 32
MAX_GAP = 0.1


class RankGap(NamedTuple):
    """Mean rank of the positives divided by n: predicted by the sorter, and actual."""

    predicted: float
    actual: float


def run_adversary(
    sorter: nn.Module, *, length: int, rows: int, steps: int, learning_rate: float, seed: int
) -> tuple[RankGap, RankGap]:
    """Minimize the rank that ``sorter`` predicts for each row's first score by Adam, eq. (5.13), over all scores.

    A sorter is fooled if the predicted rank falls while the actual rank does not. Return the ranks before and after.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.rand(rows, length, generator=generator) * 2 - 1).requires_grad_()
    adam = torch.optim.Adam([scores], learning_rate)
    before = _mean_ranks(sorter, scores)
    for _ in range(steps):
        adam.zero_grad()
        sorter(scores)[:, 0].mean().backward()
        adam.step()
    return before, _mean_ranks(sorter, scores)


@torch.no_grad()
def _mean_ranks(sorter: nn.Module, scores: Tensor) -> RankGap:
    ranks = (sorter(scores), exact_ranks(scores))
    return RankGap(*(float(row_ranks[:, 0].mean()) / scores.shape[1] for row_ranks in ranks))


def main() -> None:
    """Report the gap of each sorter."""
    torch.set_num_threads(1)
    report = Report("robustness.adversary")
    for name, sorter in sorters(sys.argv[1:]).items():
        length = getattr(sorter, "length", LENGTH)
        before, after = run_adversary(sorter, length=length, rows=128, steps=400, learning_rate=0.02, seed=0)
        gap = (before.predicted - after.predicted) - (before.actual - after.actual)
        predicted = f"predicted {before.predicted:.3f} to {after.predicted:.3f}"
        reference = f"{predicted}, actual {before.actual:.3f} to {after.actual:.3f}"
        report.add(f"{name}: gap", gap, at_most=MAX_GAP if name == OURS else None, reference=reference)
    report.write()


if __name__ == "__main__":
    main()
