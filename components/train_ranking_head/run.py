"""Stage train_ranking_head: run."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import nn

from bifocal.datasets import read_dataset
from bifocal.features import open_features
from bifocal.ranking_heads.labeled import LabeledFeatures, pool_by_group, score
from bifocal.ranking_heads.serialization import save_head
from bifocal.ranking_heads.training import fit_head, predict
from bifocal.registry import build
from bifocal.sorters import load_sorter
from bifocal.training.loop import Row
from components.train_ranking_head.spec import TrainRankingHeadParams
from runtime.mlflow import log_metrics
from runtime.spec import ClassRef


def run(
    params: TrainRankingHeadParams, *, dataset: Path, features: Path, sorter: Path, ranking_head: Path
) -> dict[str, float]:
    """Train on the split "train", choose the epoch and the learning rate on "val", and evaluate on "test".

    Returns:
        Metrics in [-1, 1].

    Raises:
        ValueError: a sorter is given that must be trained first or that no loss uses.
    """
    losses = {"loss": params.loss} | ({"surrogate": params.surrogate} if params.surrogate else {})
    _check_sorter(params, losses)
    tables = read_dataset(dataset)
    store = open_features(features, tables)
    splits = {name: LabeledFeatures(tables.split(name), store, params.task) for name in ("train", "val", "test")}
    report: dict[str, Any] = {"task": params.task, "measure": params.metric}
    histories: list[pd.DataFrame] = []
    predictions = pd.DataFrame()
    for role, loss in losses.items():
        candidates = [
            _fit(params, loss, rate, splits, store.dim, sorter, ranking_head / "checkpoints" / role)
            for rate in params.learning_rates
        ]
        best = max(candidates, key=lambda candidate: candidate.validation)
        histories.append(pd.DataFrame(best.history).assign(loss_name=loss.name))
        pooled = pool_by_group(splits["test"], predict(best.head, splits["test"]))
        metrics = {"validation": best.validation, "test": score(pooled, params.metric)}
        report[role] = {"name": loss.name, "learning_rate": best.learning_rate} | metrics
        predictions[role] = pooled.scores.flatten().numpy()
        predictions["truth"] = pooled.truth.flatten().numpy()
        if role == "loss":
            save_head(
                ranking_head,
                best.head.cpu(),
                params.head.arguments,
                input_dim=store.dim,
                task=params.task,
                labels=splits["train"].labels,
            )
    test = splits["test"]
    predictions.insert(0, "group", [group for group in test.groups for _ in test.labels])
    predictions.insert(1, "label", test.labels * len(test.groups))
    predictions.to_parquet(ranking_head / "predictions.parquet")
    pd.concat(histories).to_csv(ranking_head / "history.csv", index=False)
    (ranking_head / "metrics.json").write_text(json.dumps(report, indent=2, sort_keys=True) + "\n")
    return {f"{role}_{split}": report[role][split] for role in losses for split in ("validation", "test")}


class _Candidate(NamedTuple):
    """A head that was trained with one learning rate; ``validation`` is its best metric on "val"."""

    head: nn.Module
    history: list[Row]
    learning_rate: float
    validation: float


def _fit(
    params: TrainRankingHeadParams,
    loss: ClassRef,
    learning_rate: float,
    splits: dict[str, LabeledFeatures],
    dim: int,
    sorter: Path,
    checkpoints: Path,
) -> _Candidate:
    torch.manual_seed(params.seed)
    head: nn.Module = build("bifocal.ranking_heads", params.head, input_dim=dim, labels=len(splits["train"].labels))
    head.to("cuda" if torch.cuda.is_available() else "cpu")
    # A sorter for each training: a loss may fine-tune it.
    own_sorter = load_sorter(sorter) if params.sorter is None else build("bifocal.sorters", params.sorter)

    def log(row: Row) -> None:
        log_metrics({f"{loss.name}.{learning_rate:g}.{key}": row[key] for key in row}, int(row["epoch"]))

    history = fit_head(
        head,
        build("bifocal.losses", loss, sorter=own_sorter),
        splits["train"],
        splits["val"],
        metric=params.metric,
        checkpoints=checkpoints / f"{learning_rate:g}",
        epochs=params.epochs,
        batch_size=params.batch_size,
        learning_rate=learning_rate,
        schedule=build("bifocal.training.schedules", params.schedule),
        seed=params.seed,
        on_epoch=log,
    )
    return _Candidate(head, history, learning_rate, max(row[params.metric] for row in history))


def _check_sorter(params: TrainRankingHeadParams, losses: dict[str, ClassRef]) -> None:
    if params.sorter is None:
        return
    sorter: nn.Module = build("bifocal.sorters", params.sorter)
    if any(True for _ in sorter.parameters()):
        raise ValueError(
            f"sorter is {params.sorter.name}, which must be trained first: train it with pretrain_sorter and set "
            "sorter to null"
        )
    built = [build("bifocal.losses", loss, sorter=sorter) for loss in losses.values()]
    if not any(module is sorter for loss in built for module in loss.modules()):
        names = " and ".join(loss.name for loss in losses.values())
        raise ValueError(f"sorter is {params.sorter.name}, but {names} use no sorter: set sorter to null")
