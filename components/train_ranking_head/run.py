"""Stage train_ranking_head: run."""

import json
from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore, open_features
from bifocal.ranking_heads.backbones import EncoderBackbone
from bifocal.ranking_heads.labeled import LabeledFeatures, pool_by_group, score
from bifocal.ranking_heads.model import RankingModel
from bifocal.ranking_heads.phases import RankingPhase, fit_phases
from bifocal.ranking_heads.serialization import build_ranking_model, save_head
from bifocal.ranking_heads.training import predict
from bifocal.registry import build
from bifocal.sorters import load_sorter
from bifocal.training.loop import Row
from components.train_ranking_head.spec import RankingPhaseParams, TrainRankingHeadParams
from runtime.mlflow import log_metrics
from runtime.spec import ClassRef


def run(
    params: TrainRankingHeadParams,
    *,
    dataset: Path,
    features: Path,
    sorter: Path,
    ranking_head: Path,
    ranking_metrics: Path,
) -> dict[str, float]:
    """Train on the split "train", choose the epoch on "val", and evaluate on "test".

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
        model = new_model(params, store, features, splits["train"].labels)
        history = _fit(params, model, loss, splits, sorter, ranking_head / "checkpoints" / role)
        histories.append(pd.DataFrame(history).assign(loss_name=loss.name))
        pooled = pool_by_group(splits["test"], predict(model, splits["test"]))
        best = max((row[params.metric] for row in history if not isnan(row[params.metric])), default=nan)
        report[role] = {"name": loss.name, "validation": best, "test": score(pooled, params.metric)}
        predictions[role] = pooled.scores.flatten().numpy()
        predictions["truth"] = pooled.truth.flatten().numpy()
        if role == "loss":
            labels = splits["train"].labels
            save_head(
                ranking_head,
                model.cpu(),
                params.head,
                params.backbone,
                input_dim=store.dim,
                task=params.task,
                labels=labels,
            )
    test = splits["test"]
    predictions.insert(0, "group", [group for group in test.groups for _ in test.labels])
    predictions.insert(1, "label", test.labels * len(test.groups))
    predictions.to_parquet(ranking_metrics / "predictions.parquet")
    pd.concat(histories).to_csv(ranking_metrics / "history.csv", index=False)
    (ranking_metrics / "metrics.json").write_text(json.dumps(report, indent=2, sort_keys=True) + "\n")
    return {f"{role}_{split}": report[role][split] for role in losses for split in ("validation", "test")}


def new_model(
    params: TrainRankingHeadParams, store: FeatureStore, features: Path, labels: Sequence[str]
) -> RankingModel:
    """Return the model with random weights of the head, and with the weights that its backbone starts from.

    Args:
        store: the features in the directory ``features``.
        labels: names of the scores.

    Raises:
        ValueError: the weights belong to another network.
    """
    torch.manual_seed(params.seed)
    model = build_ranking_model(params.head, params.backbone, input_dim=store.dim, labels=len(labels))
    if isinstance(model.backbone, EncoderBackbone) and params.embedding is not None:
        model.backbone.load_embedding(params.embedding, store)
    elif model.backbone is not None:
        model.backbone.load_pretrained(features)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def _fit(
    params: TrainRankingHeadParams,
    model: RankingModel,
    loss: ClassRef,
    splits: dict[str, LabeledFeatures],
    sorter: Path,
    checkpoints: Path,
) -> list[Row]:
    # A sorter for each training: a loss may fine-tune it.
    own_sorter = load_sorter(sorter) if params.sorter is None else build("bifocal.sorters", params.sorter)

    def log(row: Row) -> None:
        log_metrics({f"{loss.name}.{key}": row[key] for key in row}, int(row["epoch"]))

    return fit_phases(
        model,
        build("bifocal.losses", loss, sorter=own_sorter),
        splits["train"],
        splits["val"],
        [build_phase(phase) for phase in params.phases],
        metric=params.metric,
        checkpoints=checkpoints,
        seed=params.seed,
        on_epoch=log,
        **params.fit_options,
    )


def build_phase(phase: RankingPhaseParams) -> RankingPhase:
    """Return a phase with its parts."""
    return RankingPhase(
        epochs=phase.epochs,
        learning_rate=phase.learning_rate,
        schedule=build("bifocal.training.schedules", phase.schedule),
        frozen_until=phase.frozen_until,
        learning_rate_factors=phase.learning_rate_factors,
    )


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
