"""Do losses on ranks train better than plain surrogates?

    python -m benchmarks run quality.rank_losses [retrieval] [ordinal] [labels]     (default: all)

Three small tasks with the same budget for each loss, five seeds, mean and standard deviation; the
learning rate of each loss is tuned on two other seeds. One thread. The bar of recall is the recall
of the hardest triplet loss. The bars of Spearman and mAP are the values of the best plain surrogate
minus its deviation. The loss with the bar is fixed below, before the run.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks.common import Report
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
from bifocal.sorters import ExactRankSorter, PairwiseSorter

RATES = (0.001, 0.003, 0.01, 0.03)
SEEDS = range(5)
TUNING_SEEDS = (100, 101)

Task = Callable[[nn.Module, float, int], float]
Losses = Mapping[str, Callable[[], nn.Module]]


class Trained(NamedTuple):
    """Metric over SEEDS in percent, and CPU seconds per run."""

    mean: float
    deviation: float
    seconds: float


def train_with_best_rate(task: Task, loss: Callable[[], nn.Module]) -> Trained:
    """Tune the learning rate on other seeds, then train with SEEDS."""
    rate = max(RATES, key=lambda rate: sum(task(loss(), rate, seed) for seed in TUNING_SEEDS))
    start = time.thread_time()
    values = [100 * task(loss(), rate, seed) for seed in SEEDS]
    seconds = (time.thread_time() - start) / len(SEEDS)
    return Trained(float(np.mean(values)), float(np.std(values, ddof=1)), seconds)


def soft() -> nn.Module:
    """Return a soft ExactRankSorter."""
    return ExactRankSorter(exact=False)


RETRIEVAL: Losses = {
    "ours: recall": lambda: RecallLoss(surrogate="recall"),
    "ours: rank (5.13)": lambda: RecallLoss(surrogate="rank"),
    "ours: triplet (5.12)": lambda: RecallLoss(),
    "ours, soft: recall": lambda: RecallLoss(soft(), "recall"),
    "ours, soft: log_rank": lambda: RecallLoss(soft(), "log_rank"),
    "ours, soft: triplet (5.12)": lambda: RecallLoss(soft()),
    "pairwise: log_rank": lambda: RecallLoss(PairwiseSorter(), "log_rank"),
    "hardest triplet": HardestTripletLoss,
    "sum of triplets": TripletLoss,
    "InfoNCE": lambda: InfoNCELoss(temperature=0.07),
}
ORDINAL: Losses = {
    "ours, soft (default)": SpearmanLoss,
    "ours, exact": lambda: SpearmanLoss(ExactRankSorter()),
    "pairwise": lambda: SpearmanLoss(PairwiseSorter()),
    "regression to ranks": lambda: RegressionLoss(to_ranks=True),
    "regression, L2": RegressionLoss,
    "regression, L1": lambda: RegressionLoss(power=1),
}
LABELS: Losses = {
    "ours, exact (default)": MeanAveragePrecisionLoss,
    "ours, exact + soft margin": lambda: MeanAveragePrecisionLoss(auxiliary_weight=1.0),
    "pairwise": lambda: MeanAveragePrecisionLoss(PairwiseSorter()),
    "cross-entropy (soft margin)": MultiLabelSoftMarginLoss,
}
# Metric, task, losses, the loss with the bar, and its floors.
QUESTIONS: dict[str, tuple[str, Task, Losses, str, tuple[str, ...]]] = {
    "retrieval": ("R@1", retrieval, RETRIEVAL, "ours: recall", ("hardest triplet",)),
    "ordinal": (
        "Spearman",
        ordinal,
        ORDINAL,
        "ours, soft (default)",
        ("regression to ranks", "regression, L2", "regression, L1"),
    ),
    "labels": ("mAP", labels, LABELS, "ours, exact (default)", ("cross-entropy (soft margin)",)),
}


def main() -> None:
    """Train with every loss, and compare with the best floor of each task."""
    torch.set_num_threads(1)
    report = Report("quality.rank_losses")
    wanted = sys.argv[1:] or list(QUESTIONS)
    unknown = set(wanted) - set(QUESTIONS)
    if unknown:
        sys.exit(f"unknown {sorted(unknown)}; choose from {', '.join(QUESTIONS)}")
    for question in wanted:
        metric, task, losses, ours, floors = QUESTIONS[question]
        trained: dict[str, Trained] = {}
        for name, loss in losses.items():
            trained[name] = result = train_with_best_rate(task, loss)
            print(
                f"{metric} of {name}: {result.mean:.2f} +- {result.deviation:.2f}, "
                f"{result.seconds:.2f} s",
                flush=True,
            )
        best = max(floors, key=lambda name: trained[name].mean)
        bar = trained[best].mean - (0 if question == "retrieval" else trained[best].deviation)
        for name, result in trained.items():
            reference = f"+- {result.deviation:.2f}" + (
                f"; best floor: {best}" if name == ours else ""
            )
            label = f"{metric} of {name}, {len(SEEDS)} seeds"
            report.add(
                label, result.mean, "%", at_least=bar if name == ours else None, reference=reference
            )
    report.write()


if __name__ == "__main__":
    main()
