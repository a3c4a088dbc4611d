"""Do losses on ranks train better than plain surrogates, and with which sorter?

    python -m benchmarks.quality.rank_losses [retrieval] [ordinal] [labels]     (all of them by default)

Three small tasks; the same budget for each loss, five seeds, mean and deviation; the step size of each is tuned on two
other seeds. One thread. The bars: recall ahead of the hardest triplet; Spearman and mAP at least equal, within its
deviation, to the best plain surrogate. Which loss has the bar is fixed here, before the run.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks.handcrafted_sorters import line
from benchmarks.quality.rank_tasks import labels, ordinal, retrieval
from bifocal.losses import (
    HardestTripletLoss,
    InfoNCELoss,
    MeanAveragePrecisionLoss,
    MultiLabelSoftMarginLoss,
    RecallLoss,
    RegressionLoss,
    SpearmanLoss,
    TripletLoss,
)
from bifocal.sorters import BifocalSorter, LaplaceSorter, PairwiseSorter

RATES = (0.001, 0.003, 0.01, 0.03)
SEEDS = range(5)
TUNING_SEEDS = (100, 101)

Task = Callable[[nn.Module, float, int], float]
Losses = Mapping[str, Callable[[], nn.Module]]


class Result(NamedTuple):
    """Percent, over SEEDS, and CPU seconds a run."""

    mean: float
    deviation: float
    seconds: float


def best_of_rates(task: Task, loss: Callable[[], nn.Module]) -> Result:
    rate = max(RATES, key=lambda rate: sum(task(loss(), rate, seed) for seed in TUNING_SEEDS))
    start = time.thread_time()
    values = [100 * task(loss(), rate, seed) for seed in SEEDS]
    seconds = (time.thread_time() - start) / len(SEEDS)
    return Result(float(np.mean(values)), float(np.std(values, ddof=1)), seconds)


def soft() -> nn.Module:
    return BifocalSorter(exact=False)


RETRIEVAL: Losses = {
    "ours: recall": lambda: RecallLoss(surrogate="recall"),
    "ours: rank (5.13)": lambda: RecallLoss(surrogate="rank"),
    "ours: triplet (5.12)": lambda: RecallLoss(),
    "ours, soft: recall": lambda: RecallLoss(soft(), "recall"),
    "ours, soft: log_rank": lambda: RecallLoss(soft(), "log_rank"),
    "ours, soft: triplet (5.12)": lambda: RecallLoss(soft()),
    "pairwise: log_rank": lambda: RecallLoss(PairwiseSorter(), "log_rank"),
    "Laplace: log_rank": lambda: RecallLoss(LaplaceSorter(), "log_rank"),
    "hardest triplet": HardestTripletLoss,
    "sum of triplets": TripletLoss,
    "InfoNCE": lambda: InfoNCELoss(temperature=0.07),
}
ORDINAL: Losses = {
    "ours, soft (default)": SpearmanLoss,
    "ours, exact": lambda: SpearmanLoss(BifocalSorter()),
    "pairwise": lambda: SpearmanLoss(PairwiseSorter()),
    "regression to ranks": lambda: RegressionLoss(to_ranks=True),
    "regression, L2": RegressionLoss,
    "regression, L1": lambda: RegressionLoss(power=1),
}
LABELS: Losses = {
    "ours, exact (default)": MeanAveragePrecisionLoss,
    "ours, soft": lambda: MeanAveragePrecisionLoss(soft()),
    "ours, exact + soft margin": lambda: MeanAveragePrecisionLoss(auxiliary_weight=1.0),
    "pairwise": lambda: MeanAveragePrecisionLoss(PairwiseSorter()),
    "cross-entropy (soft margin)": MultiLabelSoftMarginLoss,
}
# The task, its losses, the one with a bar, and its floors.
QUESTIONS: dict[str, tuple[str, Task, Losses, str, tuple[str, ...]]] = {
    "retrieval": ("R@1", retrieval, RETRIEVAL, "ours: recall", ("hardest triplet",)),
    "ordinal": (
        "Spearman", ordinal, ORDINAL, "ours, soft (default)",
        ("regression to ranks", "regression, L2", "regression, L1"),
    ),
    "labels": ("mAP", labels, LABELS, "ours, exact (default)", ("cross-entropy (soft margin)",)),
}  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or list(QUESTIONS)
    unknown = set(wanted) - set(QUESTIONS)
    if unknown:
        sys.exit(f"unknown {sorted(unknown)}; choose from {', '.join(QUESTIONS)}")
    for question in wanted:
        metric, task, losses, ours, floors = QUESTIONS[question]
        print(f"\n{question}: {metric}, percent, mean and deviation of {len(SEEDS)} seeds", flush=True)
        found: dict[str, Result] = {}
        for name, loss in losses.items():
            found[name] = result = best_of_rates(task, loss)
            line(name, f"{result.mean:6.2f} +- {result.deviation:.2f}", f"{result.seconds:6.2f} s a run")
            sys.stdout.flush()
        best = max(floors, key=lambda name: found[name].mean)
        bar = found[best].mean - (0 if question == "retrieval" else found[best].deviation)
        relation = "above" if question == "retrieval" else "at least, within its deviation,"
        line(ours, f"{found[ours].mean:6.2f}", f"bar {relation} {best} {found[best].mean:.2f}", found[ours].mean > bar)


if __name__ == "__main__":
    main()
