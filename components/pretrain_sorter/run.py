"""Stage pretrain_sorter: run."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from bifocal.registry import build
from bifocal.sorters import CNNSorter, ExactRankSorter, PairwiseSorter, save_sorter
from bifocal.sorters.plots import sorter_figures
from bifocal.training.loop import Row
from bifocal.training.pretraining.sorter import held_out_scores, rank_l1, train_sorter
from components.pretrain_sorter.spec import PretrainSorterParams
from runtime.mlflow import log_figure, log_metrics
from runtime.parameters import build_parts

HISTORY = ["epoch", "loss", "learning_rate", "held_out_l1"]


def run(params: PretrainSorterParams, *, sorter: Path) -> dict[str, float]:
    """Write the sorter, its history and figures; errors are L1 errors of ranks divided by n, on
    held-out vectors."""
    torch.manual_seed(params.seed)
    model: nn.Module = build("bifocal.sorters", params.sorter, length=params.length)
    history = _train(params, model, sorter / "checkpoints" / "sorter", _log)
    save_sorter(sorter, model.cpu(), params.sorter.arguments)
    pd.DataFrame(history, columns=HISTORY).to_csv(sorter / "history.csv", index=False)

    sorters = {
        "PairwiseSorter": PairwiseSorter(),
        "ExactRankSorter": ExactRankSorter(),
        params.sorter.name: model,
    }
    held_out = held_out_scores(params.length, params.seed)
    errors = {name: rank_l1(each, held_out) for name, each in sorters.items()}
    pd.DataFrame({"sorter": errors.keys(), "l1": errors.values()}).to_csv(
        sorter / "l1.csv", index=False
    )
    depths: dict[int, list[Row]] = {}
    for blocks in () if params.training is None else params.training.depths:
        torch.manual_seed(params.seed)
        network = CNNSorter(params.length, blocks)
        depths[blocks] = _train(
            params, network, sorter / "checkpoints" / f"{blocks}_blocks", lambda row: None
        )
    if depths:
        rows = [
            (blocks, row["epoch"], row["held_out_l1"])
            for blocks, curve in depths.items()
            for row in curve
        ]
        pd.DataFrame(rows, columns=["blocks", "epoch", "held_out_l1"]).to_csv(
            sorter / "depths.csv", index=False
        )
    curves = {blocks: [row["held_out_l1"] for row in curve] for blocks, curve in depths.items()}
    for name, figure in sorter_figures(sorters, errors, curves, params.length, params.seed).items():
        figure.savefig(sorter / name, dpi=120, metadata={"Software": None})
        log_figure(figure, name)
    return {"held_out_l1": errors[params.sorter.name], "epochs": len(history)}


def _train(
    params: PretrainSorterParams,
    model: nn.Module,
    checkpoints: Path,
    on_epoch: Callable[[Row], None],
) -> list[Row]:
    """Train a sorter; return no history for a sorter without weights."""
    if params.training is None:
        return []
    options = build_parts(params.training)
    del options["depths"]
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    return train_sorter(
        model,
        length=params.length,
        seed=params.seed,
        checkpoints=checkpoints,
        on_epoch=on_epoch,
        **options,
    )


def _log(row: Row) -> None:
    log_metrics(
        {"training_l1": row["loss"], "held_out_l1": row["held_out_l1"]}, step=int(row["epoch"])
    )
