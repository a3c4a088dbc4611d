"""Stage train_ranking_head: run."""

from pathlib import Path
from typing import Any

import pandas as pd

from bifocal.datasets import read_dataset
from bifocal.durable import write_json
from bifocal.features import open_features
from bifocal.ranking_heads.labeled import LabeledFeatures
from bifocal.ranking_heads.model import new_ranking_model, save_head
from bifocal.ranking_heads.training import fit_and_test
from bifocal.registry import build
from bifocal.sorters import load_sorter
from bifocal.training.loop import Row
from bifocal.training.optimizers import Phase, StepOptions
from components.train_ranking_head.spec import TrainRankingHeadParams
from runtime.mlflow import log_metrics
from runtime.parameters import build_parts, options_of


def run(
    params: TrainRankingHeadParams,
    *,
    dataset: Path,
    features: Path,
    ranking_head: Path,
    ranking_metrics: Path,
    sorter: Path | None = None,
) -> dict[str, float]:
    """Train on "train", choose the epoch on "val", evaluate on "test", and return metrics in [-1,
    1]."""
    tables = read_dataset(dataset)
    store = open_features(features, tables)
    splits = {
        name: LabeledFeatures(tables.split(name), store, params.task)
        for name in ("train", "val", "test")
    }
    labels, test = splits["train"].labels, splits["test"]
    report: dict[str, Any] = {"task": params.task, "measure": params.metric}
    histories: list[pd.DataFrame] = []
    predictions = pd.DataFrame()
    metrics: dict[str, float] = {}
    for role, ref in {"loss": params.loss, "surrogate": params.surrogate}.items():
        if ref is None:
            continue
        model = new_ranking_model(
            params.head, params.backbone, store, len(labels), params.seed, params.embedding
        )
        # A sorter for each training: a loss may fine-tune it.
        own_sorter = (
            build("bifocal.sorters", params.sorter)
            if params.sorter
            else sorter and load_sorter(sorter)
        )
        result = fit_and_test(
            model,
            build("bifocal.losses", ref, sorter=own_sorter),
            splits,
            [Phase(**build_parts(phase)) for phase in params.phases],
            metric=params.metric,
            checkpoints=ranking_head / "checkpoints" / role,
            seed=params.seed,
            on_epoch=lambda row, name=ref.name: _log(row, name),
            batch_size=params.batch_size,
            options=options_of(StepOptions, params),
        )
        histories.append(pd.DataFrame(result.history).assign(loss_name=ref.name))
        report[role] = {"name": ref.name, "validation": result.validation, "test": result.test}
        metrics |= {f"{role}_validation": result.validation, f"{role}_test": result.test}
        predictions[role] = result.predictions.scores.flatten().numpy()
        predictions["truth"] = result.predictions.truth.flatten().numpy()
        if role == "loss":
            save_head(
                ranking_head,
                model.cpu(),
                params.head,
                params.backbone,
                input_dim=store.dim,
                task=params.task,
                labels=labels,
            )
    predictions.insert(0, "group", [group for group in test.groups for _ in test.labels])
    predictions.insert(1, "label", test.labels * len(test.groups))
    predictions.to_parquet(ranking_metrics / "predictions.parquet")
    pd.concat(histories).to_csv(ranking_metrics / "history.csv", index=False)
    write_json(ranking_metrics / "metrics.json", report)
    return metrics


def _log(row: Row, loss: str) -> None:
    log_metrics({f"{loss}.{key}": value for key, value in row.items()}, int(row["epoch"]))
