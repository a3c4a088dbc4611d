"""SoDeep: train a sorter, and train with Spearman's correlation through it.

    python examples/sodeep.py --images 400

Engilberge, Chevallier, Perez and Cord, "SoDeep: a sorting deep net to learn ranking loss
surrogates", CVPR 2019; the equations are in chapter 5 of Engilberge's thesis, 2020. Compares
sorters with exact ranks, then orders images by the number of their objects, and writes
runs/examples/sodeep.png.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from bifocal.losses import RegressionLoss, SpearmanLoss
from bifocal.metrics import spearman
from bifocal.ranking_heads.labeled import LabeledFeatures
from bifocal.scores import Scores
from bifocal.sorters import ExactRankSorter, PairwiseSorter, PositionwiseLSTMSorter, exact_ranks
from bifocal.sorters.plots import plot_behavior
from bifocal.sorters.synthetic import synthetic_scores
from bifocal.training import prepare_inputs
from bifocal.training.pretraining.sorter import held_out_scores, rank_l1, train_sorter
from bifocal.training.schedules import Step

LENGTH = 16  # scores that are ranked together


def main(images: int = 400, home: Path = Path("runs/examples")) -> dict[str, float]:
    """Train a sorter and three heads, write a picture to ``home``, and return the printed
    values."""
    # 1. A sorter is a network from scores to ranks. It is trained on synthetic scores with the L1
    # error of its ranks
    #    (5.1); its weights are then frozen, and gradients pass through it to the scores.
    torch.manual_seed(1)
    lstm = PositionwiseLSTMSorter(length=LENGTH, hidden=32, layers=1)
    with TemporaryDirectory() as checkpoints:
        train_sorter(
            lstm,
            length=LENGTH,
            batch_size=128,
            learning_rate=0.01,
            schedule=Step(step_size=3, gamma=0.5),
            vectors_per_epoch=25 * images,
            epochs=max(1, images // 32),
            patience=12,
            tolerance=0.01,
            checkpoints=Path(checkpoints),
            seed=1,
        )
    lstm.requires_grad_(False)
    # The handcrafted sorter (5.2)-(5.3): rank_i = sum over j != i of sigmoid(lambda (s_j - s_i)).
    pairwise = PairwiseSorter(steepness=10.0)
    example = synthetic_scores(1, LENGTH, torch.Generator().manual_seed(2))[0]
    print("exact ranks:   ", [int(rank) for rank in exact_ranks(example)])
    print("LSTM sorter:   ", [round(float(rank), 1) for rank in lstm(example)])
    print("pairwise:      ", [round(float(rank), 1) for rank in pairwise(example)])
    sorters = {"LSTM": lstm, "pairwise": pairwise, "ExactRankSorter": ExactRankSorter()}
    held_out = held_out_scores(LENGTH, seed=1)
    results = {f"rank error, {name}": rank_l1(sorter, held_out) for name, sorter in sorters.items()}
    # 2. A task whose metric is a rank correlation: order images by the number of their objects.
    inputs = prepare_inputs(
        home,
        corpus={
            "name": "Scenes",
            "train": images,
            "val": images // 4,
            "test": images // 2,
            "size": 96,
        },
        extractor={
            "name": "Grid",
            "backbone": "resnet10t",
            "stage": 3,
            "size": 96,
            "model_arguments": {"channels": [16, 32, 64, 128], "stem_width": 8},
        },
        weights={"name": "TrainOnPhrases", "epochs": max(1, images // 32), "min_count": 5},
        vectorizer={"name": "Word2Vec", "dim": 64, "min_count": 2, "epochs": 10, "subsample": 0.0},
        seed=1,
    )
    train = LabeledFeatures(inputs.dataset.split("train"), inputs.features, "count")
    test = LabeledFeatures(inputs.dataset.split("test"), inputs.features, "count")

    # Spearman's correlation is r_s = 1 - 6 |rank(y) - rank(y*)|^2 / (n (n^2 - 1)) (5.4). With a
    # sorter in place of the rank of the scores it is a loss (5.6), which reads only the order of
    # the targets. On this easy task, the distance to the counts does as well.
    losses = {
        "L1 regression": RegressionLoss(power=1),
        "pairwise": SpearmanLoss(pairwise),
        "LSTM": SpearmanLoss(lstm),
    }
    for name, loss in losses.items():
        head = train_head(loss, mean_cells(train), train.values[:, 0], steps=images)
        predicted = head(mean_cells(test)).detach().squeeze(1)
        results[f"Spearman, {name}"] = spearman(predicted, test.values[:, 0])
    for name, value in results.items():
        print(f"{name:28} {value:6.3f}")

    # 3. Figure 5.6: the rank of one score that moves among the others.
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    plot_behavior(figure.subplots(), {"LSTM": lstm, "pairwise": pairwise}, LENGTH, seed=2)
    figure.savefig(home / "sodeep.png", dpi=100)
    print(f"-> {home / 'sodeep.png'}")
    return results


def mean_cells(samples: LabeledFeatures) -> Tensor:
    """Return the mean cell of every image, (n, D)."""
    return samples.batch(torch.arange(len(samples))).features.float().mean(dim=1)


def train_head(loss: nn.Module, features: Tensor, targets: Tensor, steps: int) -> nn.Module:
    """Return a head from features (n, D) to scores; a step has 16 groups of ``LENGTH`` images."""
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    head = nn.Sequential(nn.Linear(features.shape[1], 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.003)
    for _ in range(steps):
        rows = torch.randint(len(features), (16, LENGTH), generator=generator)
        value = loss(Scores(head(features[rows]).squeeze(2)), targets[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return head


@click.command()
@click.option(
    "--images", default=400, show_default=True, help="Scenes to train on; all other sizes follow."
)
def command(images: int) -> None:
    """Train a sorter, and heads with rank losses on drawn scenes."""
    main(images)


if __name__ == "__main__":
    command()
