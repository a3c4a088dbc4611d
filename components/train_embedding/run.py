"""Stage train_embedding: run."""

from pathlib import Path

import pandas as pd
import torch

from bifocal.datasets import read_dataset
from bifocal.features import open_features
from bifocal.models import build_model, save_model
from bifocal.models.base import Model
from bifocal.models.inputs import input_identity
from bifocal.registry import build
from bifocal.sorters import load_sorter
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training import TrainingPhase, World, recompute_activations, torchrun_world, train_phases
from bifocal.training.blending import choose_blend
from bifocal.training.initialization.base import Initialization, initialize
from bifocal.training.inputs import TrainingInputs
from bifocal.training.phases import TrainingResult
from components.train_embedding.spec import PhaseParams, TrainEmbeddingParams
from runtime.mlflow import log_metrics

HISTORY = ["phase", "epoch", "loss", "recall_sum"]
"""Columns of the history of a training without phases, which DVC draws."""


def run(
    params: TrainEmbeddingParams, *, dataset: Path, features: Path, text: Path, sorter: Path, embedding: Path
) -> dict[str, float]:
    """Train on the split "train", choose the epoch on "val", write the model and its history.

    Returns:
        The best epoch and its validation metrics; 0 and no validation if there is no phase to train.
    """
    with torchrun_world() as (_, device):
        tables = read_dataset(dataset)
        inputs = TrainingInputs(tables, open_features(features, tables), TextStore(text), load_vectorizer(text))
        model = new_model(params, inputs, features).to(device)
        metrics: dict[str, float] = {}
        if params.initialization is not None:
            initialization: Initialization = build("bifocal.training.initialization", params.initialization)
            checkpoints = embedding / "checkpoints"
            metrics = initialize(model, initialization, inputs, checkpoints=checkpoints, seed=params.seed)
        result = _train(params, model, inputs, sorter, embedding)
        if World.current().is_main:
            metrics |= choose_blend(model, inputs)
            save_model(embedding, model)
            pd.DataFrame(result.history, columns=None if result.history else HISTORY).to_csv(
                embedding / "history.csv", index=False
            )
    chosen_by = {"recall_sum", result.monitor} & result.best.keys()
    metrics |= {f"validation_{name}": result.best[name] for name in chosen_by}
    return {"best_epoch": result.best["epoch"]} | metrics


def _train(
    params: TrainEmbeddingParams, model: Model, inputs: TrainingInputs, sorter: Path, embedding: Path
) -> TrainingResult:
    """Train the phases; without phases, the initialization is the result."""
    if not params.phases:
        return TrainingResult([], {"epoch": 0}, params.monitor)
    return train_phases(
        model,
        [build_phase(phase, sorter) for phase in params.phases],
        inputs,
        checkpoints=embedding / "checkpoints",
        seed=params.seed,
        initialized=params.initialization is not None,
        on_epoch=lambda row: log_metrics(row, step=int(row["epoch"])),
        **params.fit_options,
    )


def new_model(params: TrainEmbeddingParams, inputs: TrainingInputs, features: Path) -> Model:
    """Return the model with random weights, and with the weights of a backbone that it trains further."""
    torch.manual_seed(params.seed)
    text = inputs.text
    model = build_model(
        params.model,
        feature_dim=inputs.features.dim,
        text_dim=text.dim,
        text_format=text.format.name,
        vocabulary_size=len(text.vocabulary) if text.format.name == "tokens" else None,
        network=text.network,
        inputs=input_identity(inputs.features, text),
    )
    if model.word_embedding is not None:
        model.word_embedding.weight.data.copy_(text.word_vectors)
    model.image_encoder.load_pretrained(features)
    model.text_encoder.load_pretrained(text.directory)
    if params.gradient_checkpointing:
        recompute_activations(model)
    return model


def build_phase(phase: PhaseParams, sorter: Path) -> TrainingPhase:
    """Return a phase with its parts; ``sorter`` is the artifact that a loss on ranks sorts with."""
    return TrainingPhase(
        batches=build("bifocal.training.batches", phase.batches),
        loss=build("bifocal.losses", phase.loss, sorter=load_sorter(sorter)),
        epochs=phase.epochs,
        learning_rate=phase.learning_rate,
        schedule=build("bifocal.training.schedules", phase.schedule),
        frozen_until=phase.frozen_until,
        learning_rate_factors=phase.learning_rate_factors,
        augmentations=[build("bifocal.training.augmentations", part) for part in phase.augmentations],
        validator=None if phase.validator is None else build("bifocal.training.validators", phase.validator),
    )
