"""How train_embedding works."""

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.models import build_model, save_model
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training import World, fit, recompute_activations, torchrun_world
from bifocal.training.batches.base import TrainingInputs
from bifocal.training.schedules import MultiStep
from components.train_embedding.lessons import lessons
from components.train_embedding.spec import TrainEmbeddingParams
from runtime.mlflow import log_metrics


def run(
    params: TrainEmbeddingParams, *, dataset: Path, features: Path, text: Path, sorter: Path, embedding: Path
) -> dict[str, float]:
    """Train on the split "train", choose the epoch on "val", write the model and its history."""
    with torchrun_world() as (_, device):
        history, monitor = _train(params, device, dataset, features, text, sorter, embedding)
    best = max(history, key=lambda row: row[monitor])
    return {"best_epoch": best["epoch"]} | {
        f"validation_{name}": best[name] for name in {"recall_sum", monitor} if name in best
    }


def _train(
    params: TrainEmbeddingParams,
    device: torch.device,
    dataset: Path,
    features: Path,
    text: Path,
    sorter: Path,
    embedding: Path,
) -> tuple[list[dict[str, float]], str]:
    torch.manual_seed(params.seed)
    images, captions = FeatureStore(features), TextStore(text)
    configuration: dict[str, Any] = {
        "model": {
            "name": params.model.name,
            "dim": params.dim,
            "image_encoder": params.image_encoder,
            "text_encoder": params.text_encoder,
            **params.model.arguments,
        },
        "feature_dim": images.dim,
        "text_dim": captions.dim,
        "text_format": captions.format.name,
        "vocabulary_size": len(captions.vocabulary) if captions.format.name == "tokens" else None,
    }
    model = build_model(**configuration)
    if model.word_embedding is not None:
        model.word_embedding.weight.data.copy_(captions.word_vectors)
    model.image_encoder.load_pretrained(features)
    if params.gradient_checkpointing:
        recompute_activations(model)
    model.to(device)
    waiting = {} if params.fine_tune_words or model.word_embedding is None else {"word_embedding": None}
    history: list[dict[str, float]] = []
    monitor = ""
    inputs = TrainingInputs(read_dataset(dataset), images, captions, load_vectorizer(text))
    for lesson in lessons(params, model, inputs, sorter):
        prepared = lesson.prepared
        before, passed, monitor = copy.deepcopy(model.state_dict()), len(history), prepared.validator.monitor
        rows = fit(
            model,
            lesson.loss,
            prepared.source,
            prepared.validator,
            sampler=prepared.sampler,
            checkpoints=embedding / "checkpoints" / lesson.name,
            epochs=lesson.epochs,
            optimizer={"name": params.optimizer.name, **params.optimizer.arguments},
            learning_rate=lesson.learning_rate,
            schedule=MultiStep(lesson.decay_after, params.decay_factor),
            max_grad_norm=params.clip_norm,
            frozen_until={**lesson.train_from, **waiting},
            ema_decay=params.average,
            precision=params.precision,
            micro_batch_size=params.micro_batch,
            checkpoint_every_steps=params.checkpoint_every,
            seed=params.seed,
            on_epoch=partial(_log, passed),
        )
        if history and max(row[monitor] for row in rows) < max(row[monitor] for row in history):
            model.load_state_dict(before)
        history += [row | {"epoch": passed + row["epoch"], "validation": row[monitor]} for row in rows]
    if World.current().is_main:
        save_model(embedding, model)
        pd.DataFrame(history).to_csv(embedding / "history.csv", index=False)
    return history, monitor


def _log(passed: int, row: dict[str, float]) -> None:
    log_metrics(row, step=passed + int(row["epoch"]))
