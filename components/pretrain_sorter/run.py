"""How pretrain_sorter works."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import nn

from bifocal.pretraining.sorter import Epoch, held_out_scores, pretrain, rank_l1
from bifocal.progress import track
from bifocal.sorters import BifocalSorter, CNNSorter, PairwiseSorter, build_sorter, save_sorter
from bifocal.sorters.plots import plot_behaviour, plot_depths, plot_errors
from components.pretrain_sorter.spec import PretrainSorterParams
from runtime.mlflow import log_figure, log_metrics


def run(params: PretrainSorterParams, *, sorter: Path) -> dict[str, float]:
    """Write the sorter, its history and the figures; L1 is that of ranks divided by n, on held-out vectors."""
    torch.manual_seed(params.seed)
    model = build_sorter(params.sorter.name, params.sorter.arguments, params.length)
    history: list[Epoch] = []
    if any(True for _ in model.parameters()):
        epochs = _train(params, model, sorter / "checkpoints" / "sorter")
        for epoch in track(epochs, "pretraining the sorter", total=params.epochs):
            history.append(epoch)
            log_metrics({"training_l1": epoch.training_l1, "held_out_l1": epoch.held_out_l1}, step=epoch.epoch)
    save_sorter(sorter, model.cpu(), params.sorter.arguments)
    table = pd.DataFrame([asdict(epoch) for epoch in history], columns=[field.name for field in fields(Epoch)])
    table.to_csv(sorter / "history.csv", index=False)

    sorters = {"PairwiseSorter": PairwiseSorter(), "BifocalSorter": BifocalSorter(), params.sorter.name: model}
    held_out = held_out_scores(params.length, params.seed)
    errors = {name: rank_l1(each, held_out) for name, each in sorters.items()}
    pd.DataFrame({"sorter": errors.keys(), "l1": errors.values()}).to_csv(sorter / "l1.csv", index=False)
    figure = Figure(figsize=(7, 2.5), layout="constrained")
    plot_errors(figure.add_subplot(), errors)
    _write(figure, sorter / "l1.png")
    figure = Figure(figsize=(6, 5), layout="constrained")
    plot_behaviour(figure.add_subplot(), sorters, params.length, params.seed)
    _write(figure, sorter / "behaviour.png")
    if params.depths:
        figure = Figure(figsize=(6, 4.5), layout="constrained")
        plot_depths(figure.add_subplot(), _depth_curves(params, sorter))
        _write(figure, sorter / "depths.png")
    return {"held_out_l1": errors[params.sorter.name], "epochs": len(history)}


def _train(params: PretrainSorterParams, model: nn.Module, checkpoints: Path) -> Iterator[Epoch]:
    return pretrain(
        model.to("cuda" if torch.cuda.is_available() else "cpu"),
        length=params.length,
        batch_size=params.batch_size,
        learning_rate=params.learning_rate,
        halve_every=params.halve_every,
        vectors_per_epoch=params.vectors_per_epoch,
        epochs=params.epochs,
        patience=params.patience,
        tolerance=params.tolerance,
        seed=params.seed,
        checkpoints=checkpoints,
    )


def _depth_curves(params: PretrainSorterParams, sorter: Path) -> dict[int, list[float]]:
    """Train a convolutional sorter of every depth, and write their errors."""
    curves: dict[int, list[float]] = {}
    for blocks in params.depths:
        torch.manual_seed(params.seed)
        epochs = _train(params, CNNSorter(params.length, blocks), sorter / "checkpoints" / f"{blocks}_blocks")
        tracked = track(epochs, f"pretraining {blocks} blocks", total=params.epochs)
        curves[blocks] = [epoch.held_out_l1 for epoch in tracked]
    rows = [(blocks, epoch, error) for blocks, curve in curves.items() for epoch, error in enumerate(curve, start=1)]
    pd.DataFrame(rows, columns=["blocks", "epoch", "held_out_l1"]).to_csv(sorter / "depths.csv", index=False)
    return curves


def _write(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=120, metadata={"Software": None})
    log_figure(figure, path.name)
