"""Does mAP through a sorter train as well as Hinge-AP (thesis figure 5.7)?

    python -m benchmarks run quality.hinge_ap [FOLDER ...]

The thesis refers to Song et al., "Training deep neural networks via direct loss minimization", ICML
2016, for the protocol and states no sizes. The text of Song et al. was not at hand, so this
protocol was not checked against it: a random network scores 20,000 Gaussian points of 10
dimensions, the best fifth are the matches, and a network of the same shape learns them from other
random weights, on half of the points. AP is measured on the other half, without and with 20 % of
the training labels flipped. Batches have 100 points, the training has 1,000 steps of Adam, and the
layers have 10, 10 and 1 units. Each FOLDER is a sorter of the stage pretrain_sorter, of length 100.
Three seeds, mean and standard deviation; the learning rate of each loss is tuned on another seed.
The bar of our loss is Hinge-AP minus two deviations.
"""

import sys

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common import Report
from benchmarks.handcrafted_sorters import HANDCRAFTED, OURS, sorters
from benchmarks.quality.rank_tasks import fit
from bifocal.losses import (
    HingeAveragePrecisionLoss,
    MeanAveragePrecisionLoss,
    MultiLabelSoftMarginLoss,
)
from bifocal.metrics import mean_average_precision
from bifocal.scores import Scores

POINTS, DIM, RELEVANT = 20_000, 10, 0.2
STEPS, BATCH = 1000, 100
RATES, SEEDS, TUNING_SEED = (0.001, 0.003, 0.01, 0.03), range(3), 100
NOISE = (0.0, 0.2)
HINGE, COMPARED = "Hinge-AP", (OURS, "ExactRankSorter, soft", "PairwiseSorter")


def network() -> nn.Sequential:
    """Return the scoring network, of the data and of the training."""
    return nn.Sequential(
        nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1)
    )


def synthetic_points(seed: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return points (20000, 10), their true labels, and the training labels of which the share
    ``noise`` is flipped."""
    torch.manual_seed(seed)
    points = torch.randn(POINTS, DIM)
    with torch.no_grad():
        scores = network()(points)[:, 0]
    truth = scores > scores.quantile(1 - RELEVANT)
    return points, truth, truth ^ (torch.rand(POINTS) < noise)


def average_precision(loss: nn.Module, rate: float, seed: int, noise: float) -> float:
    """Return AP on the test half, in percent."""
    points, truth, labels = synthetic_points(seed, noise)
    half = POINTS // 2
    torch.manual_seed(seed + 1)
    model = network()

    def batch_loss() -> Tensor:
        rows = torch.randint(half, (BATCH,))
        value: Tensor = loss(Scores(model(points[rows]).T), labels[rows][None])
        return value

    fit(model, rate, STEPS, batch_loss)
    with torch.no_grad():
        return 100 * mean_average_precision(model(points[half:]).T, truth[half:][None])


def tuned(loss: nn.Module, noise: float) -> list[float]:
    """Return AP with each of SEEDS, at the best learning rate of another seed."""
    trials = {rate: average_precision(loss, rate, TUNING_SEED, noise) for rate in RATES}
    rate = max(trials, key=lambda rate: trials[rate])
    return [average_precision(loss, rate, seed, noise) for seed in SEEDS]


def main() -> None:
    """Train with every loss."""
    torch.set_num_threads(1)
    report = Report("quality.hinge_ap")
    learned = sorters(sys.argv[1:])
    compared = {
        name: sorter
        for name, sorter in learned.items()
        if name in COMPARED or name not in HANDCRAFTED
    }
    losses: dict[str, nn.Module] = {
        HINGE: HingeAveragePrecisionLoss(),
        "cross-entropy": MultiLabelSoftMarginLoss(),
    }
    losses |= {
        f"mAP (5.9), {name}": MeanAveragePrecisionLoss(sorter) for name, sorter in compared.items()
    }
    for noise in NOISE:
        bar = 0.0
        for name, loss in losses.items():
            values = tuned(loss, noise)
            mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
            bar = mean - 2 * deviation if name == HINGE else bar
            label = f"AP of {name}" + (f", {100 * noise:.0f} % of labels flipped" if noise else "")
            at_least = bar if name.endswith(f", {OURS}") else None
            report.add(label, mean, "%", at_least=at_least, reference=f"+- {deviation:.2f}")
    report.write()


if __name__ == "__main__":
    main()
