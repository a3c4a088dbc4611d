"""Stage pretrain_sorter: run."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import nn

from bifocal.pretraining.sorter import held_out_scores, rank_l1, train_sorter
from bifocal.registry import build
from bifocal.sorters import BifocalSorter, CNNSorter, PairwiseSorter, save_sorter
from bifocal.sorters.plots import plot_behavior, plot_depths, plot_errors
from bifocal.training.loop import Row
from components.pretrain_sorter.spec import PretrainSorterParams, SorterTrainingParams
from runtime.mlflow import log_figure, log_metrics

HISTORY = ["epoch", "loss", "learning_rate", "held_out_l1"]


def run(params: PretrainSorterParams, *, sorter: Path) -> dict[str, float]:
    """Write the sorter, its history and figures; errors are L1 errors of ranks divided by n, on held-out vectors.

    Raises:
        ValueError: a sorter without weights is to be trained, or a sorter with weights is not.
    """
    torch.manual_seed(params.seed)
    model: nn.Module = build("bifocal.sorters", params.sorter, length=params.length)
    trainable = any(True for _ in model.parameters())
    if params.training is not None and not trainable:
        raise ValueError(f"{params.sorter.name} has no weights to train: set training to null")
    if params.training is None and trainable:
        raise ValueError(f"training is null, but {params.sorter.name} has weights: set training")
    history: list[Row] = []
    if params.training is not None:
        history = _train(params, params.training, model, sorter / "checkpoints" / "sorter", _log)
    save_sorter(sorter, model.cpu(), params.sorter.arguments)
    pd.DataFrame(history, columns=HISTORY).to_csv(sorter / "history.csv", index=False)

    sorters = {"PairwiseSorter": PairwiseSorter(), "BifocalSorter": BifocalSorter(), params.sorter.name: model}
    held_out = held_out_scores(params.length, params.seed)
    errors = {name: rank_l1(each, held_out) for name, each in sorters.items()}
    pd.DataFrame({"sorter": errors.keys(), "l1": errors.values()}).to_csv(sorter / "l1.csv", index=False)
    figure = Figure(figsize=(7, 2.5), layout="constrained")
    plot_errors(figure.add_subplot(), errors)
    _write(figure, sorter / "l1.png")
    figure = Figure(figsize=(6, 5), layout="constrained")
    plot_behavior(figure.add_subplot(), sorters, params.length, params.seed)
    _write(figure, sorter / "behavior.png")
    if params.training is not None and params.training.depths:
        figure = Figure(figsize=(6, 4.5), layout="constrained")
        plot_depths(figure.add_subplot(), _depth_curves(params, params.training, sorter))
        _write(figure, sorter / "depths.png")
    return {"held_out_l1": errors[params.sorter.name], "epochs": len(history)}


def _train(
    params: PretrainSorterParams,
    training: SorterTrainingParams,
    model: nn.Module,
    checkpoints: Path,
    on_epoch: Callable[[Row], None],
) -> list[Row]:
    return train_sorter(
        model.to("cuda" if torch.cuda.is_available() else "cpu"),
        length=params.length,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        schedule=build("bifocal.training.schedules", training.schedule),
        vectors_per_epoch=training.vectors_per_epoch,
        epochs=training.epochs,
        patience=training.patience,
        tolerance=training.tolerance,
        checkpoints=checkpoints,
        seed=params.seed,
        on_epoch=on_epoch,
    )


def _log(row: Row) -> None:
    log_metrics({"training_l1": row["loss"], "held_out_l1": row["held_out_l1"]}, step=int(row["epoch"]))


def _depth_curves(params: PretrainSorterParams, training: SorterTrainingParams, sorter: Path) -> dict[int, list[float]]:
    """Train a convolutional sorter of each depth, and write the errors."""
    curves: dict[int, list[float]] = {}
    for blocks in training.depths:
        torch.manual_seed(params.seed)
        checkpoints = sorter / "checkpoints" / f"{blocks}_blocks"
        history = _train(params, training, CNNSorter(params.length, blocks), checkpoints, lambda row: None)
        curves[blocks] = [row["held_out_l1"] for row in history]
    rows = [(blocks, epoch, error) for blocks, curve in curves.items() for epoch, error in enumerate(curve, start=1)]
    pd.DataFrame(rows, columns=["blocks", "epoch", "held_out_l1"]).to_csv(sorter / "depths.csv", index=False)
    return curves


def _write(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=120, metadata={"Software": None})
    log_figure(figure, path.name)
