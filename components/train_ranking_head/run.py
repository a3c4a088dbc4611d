"""How train_ranking_head works."""

import inspect
import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.ranking_heads.labeled import LabelledImages, judge, measure
from bifocal.ranking_heads.serialization import save_head
from bifocal.ranking_heads.training import fit_head, predict
from bifocal.registry import build, get
from bifocal.sorters import load_sorter
from components.train_ranking_head.spec import TrainRankingHeadParams
from runtime.mlflow import log_metrics
from runtime.spec import ClassRef


def run(
    params: TrainRankingHeadParams, *, dataset: Path, features: Path, sorter: Path, ranking_head: Path
) -> dict[str, float]:
    """Fit on the split "train", choose epoch and learning rate on "val", judge on "test"; measures in [-1, 1]."""
    tables, store = read_dataset(dataset), FeatureStore(features)
    splits = {name: LabelledImages(tables.split(name), store, params.task) for name in ("train", "val", "test")}
    losses = {"loss": params.loss} | ({"surrogate": params.surrogate} if params.surrogate else {})
    report: dict[str, Any] = {"task": params.task, "measure": params.measure}
    tables_of: list[pd.DataFrame] = []
    judged = pd.DataFrame()
    for role, part in losses.items():
        fitted = max(
            (
                _fit(params, part, rate, splits, store.dim, sorter, ranking_head / "checkpoints" / role)
                for rate in params.learning_rates
            ),
            key=lambda found: found.validation,
        )
        tables_of.append(pd.DataFrame(fitted.history).assign(loss_name=part.name))
        found = judge(splits["test"], predict(fitted.head, splits["test"]))
        figures = {"validation": fitted.validation, "test": measure(found, params.measure)}
        report[role] = {"name": part.name, "learning_rate": fitted.rate} | figures
        judged[role] = found.scores.flatten().numpy()
        judged["truth"] = found.truth.flatten().numpy()
        if role == "loss":
            save_head(
                ranking_head,
                fitted.head.cpu(),
                params.head.arguments,
                input_dim=store.dim,
                task=params.task,
                labels=splits["train"].labels,
            )
    test = splits["test"]
    judged.insert(0, "group", [group for group in test.groups for _ in test.labels])
    judged.insert(1, "label", test.labels * len(test.groups))
    judged.to_parquet(ranking_head / "predictions.parquet")
    pd.concat(tables_of).to_csv(ranking_head / "history.csv", index=False)
    (ranking_head / "metrics.json").write_text(json.dumps(report, indent=2, sort_keys=True) + "\n")
    return {f"{role}_{split}": report[role][split] for role in losses for split in ("validation", "test")}


class _Fitted(NamedTuple):
    head: nn.Module
    history: list[dict[str, float]]
    rate: float
    validation: float


def _fit(
    params: TrainRankingHeadParams,
    part: ClassRef,
    rate: float,
    splits: dict[str, LabelledImages],
    dim: int,
    sorter: Path,
    checkpoints: Path,
) -> _Fitted:
    torch.manual_seed(params.seed)
    labels = len(splits["train"].labels)
    head = build("bifocal.ranking_heads", params.head.name, **params.head.arguments, input_dim=dim, labels=labels)
    head.to("cuda" if torch.cuda.is_available() else "cpu")
    history = fit_head(
        head,
        _build_loss(part, params.sorter, sorter),
        splits["train"],
        splits["val"],
        kind=params.measure,
        checkpoints=checkpoints / f"{rate:g}",
        epochs=params.epochs,
        batch_size=params.batch_size,
        learning_rate=rate,
        halve_every=params.halve_every,
        seed=params.seed,
        on_epoch=lambda row: log_metrics({f"{part.name}.{rate:g}.{key}": row[key] for key in row}, int(row["epoch"])),
    )
    return _Fitted(head, history, rate, max(row["validation"] for row in history))


def _build_loss(part: ClassRef, sorter: ClassRef | None, pretrained: Path) -> nn.Module:
    given: dict[str, nn.Module] = {}
    if "sorter" in inspect.signature(get("bifocal.losses", part.name)).parameters:
        given["sorter"] = load_sorter(pretrained) if sorter is None else _untrained(sorter)
    loss: nn.Module = build("bifocal.losses", part.name, **part.arguments, **given)
    return loss


def _untrained(part: ClassRef) -> nn.Module:
    sorter: nn.Module = build("bifocal.sorters", part.name, **part.arguments)
    weights: list[Tensor] = list(sorter.parameters())
    if weights:
        raise ValueError(
            f"train_ranking_head.sorter: {part.name} must be trained first: pretrain_sorter, and null here"
        )
    return sorter
