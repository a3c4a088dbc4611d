"""Stage train_embedding: run."""

from pathlib import Path
from statistics import fmean

import pandas as pd
import torch

from bifocal.datasets import read_dataset
from bifocal.features import open_features
from bifocal.models import build_model, concatenate_models, save_model
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
from bifocal.training.loop import Row
from bifocal.training.phases import TrainingResult
from bifocal.training.query_bank import training_bank
from bifocal.training.validators import Recall
from components.train_embedding.spec import PhaseParams, TrainEmbeddingParams
from runtime.mlflow import log_metrics

HISTORY = ["phase", "epoch", "loss", "recall_sum"]
"""Columns of the history of a training without phases, which DVC draws."""
MEMBER_SEED = 1009
"""Difference of the seeds of two members, so that runs with neighboring seeds share no member."""


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
        models: list[Model] = []
        results: list[TrainingResult] = []
        metrics: dict[str, float] = {}
        for member in range(params.members):
            seeded = params.model_copy(update={"seed": params.seed + MEMBER_SEED * member})
            checkpoints = embedding / "checkpoints" / (f"member-{member}" if member else "")
            model = new_model(seeded, inputs, features).to(device)
            if params.initialization is not None:
                initialization: Initialization = build("bifocal.training.initialization", params.initialization)
                metrics |= initialize(model, initialization, inputs, checkpoints=checkpoints, seed=seeded.seed)
            results.append(_train(seeded, model, inputs, sorter, checkpoints, sum(len(r.history) for r in results)))
            metrics |= choose_blend(model, inputs) if World.current().is_main else {}
            models.append(model)
        result = results[0]
        chosen_by = {"recall_sum", result.monitor} & result.best.keys()
        metrics |= {f"validation_{name}": fmean(r.best[name] for r in results) for name in chosen_by}
        if World.current().is_main:
            model = concatenate_models(models)
            if params.members > 1:
                # The validations of the members stay, as their mean.
                metrics = {name.replace("validation_", "validation_mean_"): value for name, value in metrics.items()}
                metrics["validation_recall_sum"] = Recall().prepare(inputs)(model)["recall_sum"]
            save_model(embedding, model)
            if bank := training_bank(model, inputs, params.hubness, params.seed):
                bank.write(embedding)
            history = [row for r in results for row in r.history]
            pd.DataFrame(history, columns=None if history else HISTORY).to_csv(embedding / "history.csv", index=False)
    return {"best_epoch": result.best["epoch"]} | metrics


def _train(
    params: TrainEmbeddingParams,
    model: Model,
    inputs: TrainingInputs,
    sorter: Path,
    checkpoints: Path,
    epochs_before: int,
) -> TrainingResult:
    """Train the phases; without phases, the initialization is the result.

    Args:
        epochs_before: epochs of the members before this one: the epochs of the history count on.
    """
    if not params.phases:
        return TrainingResult([], {"epoch": 0}, params.monitor)

    def counted(row: Row) -> Row:
        return row | {"epoch": epochs_before + row["epoch"]}

    result = train_phases(
        model,
        [build_phase(phase, sorter) for phase in params.phases],
        inputs,
        checkpoints=checkpoints,
        seed=params.seed,
        initialized=params.initialization is not None,
        on_epoch=lambda row: log_metrics(counted(row), step=int(counted(row)["epoch"])),
        **params.fit_options,
    )
    return TrainingResult([counted(row) for row in result.history], counted(result.best), result.monitor)


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
