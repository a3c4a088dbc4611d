"""Stage train_embedding: run."""

from functools import partial
from pathlib import Path

import pandas as pd
import torch

from bifocal.models import save_model
from bifocal.models.base import Model
from bifocal.registry import build
from bifocal.sorters import load_sorter
from bifocal.training import (
    FitOptions,
    TrainingInputs,
    TrainingPhase,
    new_model,
    recompute_activations,
    torchrun_world,
)
from bifocal.training.loop import Row
from bifocal.training.members import train_members, training_bank
from components.train_embedding.spec import TrainEmbeddingParams
from runtime.mlflow import log_metrics
from runtime.parameters import build_parts, options_of

HISTORY = ["phase", "epoch", "loss", "monitor"]
"""Columns of the history of a training without phases, which DVC draws."""


def run(
    params: TrainEmbeddingParams,
    *,
    dataset: Path,
    features: Path,
    text: Path,
    embedding: Path,
    sorter: Path | None = None,
) -> dict[str, float]:
    """Train on "train", choose the epoch on "val", write the model and its history; return the best
    epoch's metrics."""
    initialization = partial(build, "bifocal.training.initialization")
    with torchrun_world() as (world, device):
        inputs = TrainingInputs.open(dataset, features, text, params.precision)
        trained = train_members(
            lambda seed: _new_model(params, inputs, seed, device),
            lambda: [
                TrainingPhase(**build_parts(phase, sorter=sorter and load_sorter(sorter)))
                for phase in params.phases
            ],
            inputs,
            members=params.members,
            initialization=None
            if params.initialization is None
            else initialization(params.initialization),
            closed_form=[initialization(ref) for ref in params.closed_form],
            checkpoints=embedding / "checkpoints",
            seed=params.seed,
            options=options_of(FitOptions, params),
            on_epoch=_log,
        )
        if world.is_main:
            save_model(embedding, trained.model)
            if bank := training_bank(trained.model, inputs, params.hubness, params.seed):
                bank.write(embedding)
            history = pd.DataFrame(trained.history, columns=None if trained.history else HISTORY)
            history.to_csv(embedding / "history.csv", index=False)
    return trained.metrics


def _new_model(
    params: TrainEmbeddingParams, inputs: TrainingInputs, seed: int, device: torch.device
) -> Model:
    model = new_model(params.model, inputs, seed=seed)
    if params.gradient_checkpointing:
        recompute_activations(model)
    return model.to(device)


def _log(row: Row) -> None:
    log_metrics(row, step=int(row["epoch"]))
