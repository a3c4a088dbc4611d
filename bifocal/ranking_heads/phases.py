"""Training of a ranking model in phases, one after another."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

from torch import nn

from bifocal.ranking_heads.labeled import GroupPredictions, LabeledFeatures, MetricName, pool_by_group, score
from bifocal.ranking_heads.model import RankingModel
from bifocal.ranking_heads.training import fit_head, predict
from bifocal.training.loop import Row
from bifocal.training.optimizers import FreezeSchedule, check_module_names
from bifocal.training.schedules import Constant, Schedule


@dataclass(frozen=True)
class RankingPhase:
    """Learning rate of some epochs, and the modules that train in them: arguments of ``fit_head``."""

    epochs: int
    learning_rate: float
    schedule: Schedule = field(default_factory=Constant)
    frozen_until: FreezeSchedule = field(default_factory=dict)
    learning_rate_factors: Mapping[str, float] = field(default_factory=dict)


def fit_phases(
    model: RankingModel,
    loss: nn.Module,
    train: LabeledFeatures,
    validation: LabeledFeatures,
    phases: Sequence[RankingPhase],
    *,
    metric: MetricName,
    checkpoints: Path,
    seed: int,
    on_epoch: Callable[[Row], None] = lambda row: None,
    **options: Any,
) -> list[Row]:
    """Train ``model`` in place, each phase from the best weights of the phase before, and return the history.

    Thesis 5.5.1 trains the head for 15 epochs, then the whole model. A phase that does not improve the metric is
    undone. All phases share ``loss`` and ``options`` of ``fit_head``; the history adds the column phase.
    """
    if not phases:
        raise ValueError("there are no phases to train: give one or more")
    for phase in phases:  # a mistake in the last one must not cost the training of the first
        check_module_names(model, phase.frozen_until)
        check_module_names(model, phase.learning_rate_factors, "learning_rate_factors")
    history: list[Row] = []
    best = -inf
    for index, phase in enumerate(phases):
        before = copy.deepcopy(model.state_dict())
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        numbered = partial(_numbered, phase=index, first_epoch=len(history), monitor=metric)

        def report(row: Row, numbered: Callable[[Row], Row] = numbered) -> None:
            on_epoch(numbered(row))

        rows = fit_head(
            model,
            loss,
            train,
            validation,
            metric=metric,
            checkpoints=checkpoints / f"phase-{index}",
            seed=seed + index,
            on_epoch=report,
            **vars(phase),
            **options,
        )
        for parameter in trainable:  # the modules that this phase froze may train in the next
            parameter.requires_grad_(True)
        history += map(numbered, rows)
        achieved = max((row[metric] for row in rows if not isnan(row[metric])), default=-inf)
        if index > 0 and achieved <= best:
            model.load_state_dict(before)
        best = max(best, achieved)
    return history


@dataclass(frozen=True)
class RankingResult:
    """Training history, best metric on "val", and metric and predictions on "test"."""

    history: list[Row]
    validation: float
    test: float
    predictions: GroupPredictions


def fit_and_test(
    model: RankingModel,
    loss: nn.Module,
    splits: Mapping[str, LabeledFeatures],
    phases: Sequence[RankingPhase],
    *,
    metric: MetricName,
    **options: Any,
) -> RankingResult:
    """Train on "train", choose epochs on "val", and measure on "test"; ``options`` are arguments of ``fit_phases``."""
    history = fit_phases(model, loss, splits["train"], splits["val"], phases, metric=metric, **options)
    pooled = pool_by_group(splits["test"], predict(model, splits["test"]))
    best = max((row[metric] for row in history if not isnan(row[metric])), default=nan)
    return RankingResult(history, best, score(pooled, metric), pooled)


def _numbered(row: Row, phase: int, first_epoch: int, monitor: str) -> Row:
    return {"phase": phase, **row, "epoch": first_epoch + row["epoch"], "monitor": row[monitor]}
