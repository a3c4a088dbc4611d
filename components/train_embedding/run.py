"""How train_embedding works."""

import inspect
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bifocal.batch import Pairs
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.models import build_two_branch, save_model
from bifocal.registry import build, find
from bifocal.sorters import load_sorter
from bifocal.text import TextStore
from bifocal.training import Loss, fit
from components.spec import Part
from components.tracking import log_metrics
from components.train_embedding.spec import TrainEmbeddingParams


def run(
    params: TrainEmbeddingParams, *, dataset: Path, features: Path, text: Path, sorter: Path, embedding: Path
) -> dict[str, float]:
    """Train on the split "train", choose the epoch on "val", write the model and its history."""
    torch.manual_seed(params.seed)
    tables, images, captions = read_dataset(dataset), FeatureStore(features), TextStore(text)
    configuration: dict[str, Any] = {
        "image_encoder": {"name": params.image_encoder.name, **params.image_encoder.arguments},
        "text_encoder": {"name": params.text_encoder.name, **params.text_encoder.arguments},
        "dim": params.dim,
        "feature_dim": images.dim,
        "text_dim": captions.dim,
        "text_kind": captions.kind,
        "words": len(captions.vocabulary) if captions.kind == "tokens" else None,
    }
    model = build_two_branch(**configuration)
    if model.words is not None:
        model.words.weight.data.copy_(captions.word_vectors)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    history = fit(
        model,
        _build_loss(params.loss, sorter),
        Pairs(tables.split("train"), images, captions),
        Pairs(tables.split("val"), images, captions),
        checkpoints=embedding / "checkpoints",
        epochs=params.epochs,
        batch_size=params.batch_size,
        captions_per_image=params.captions_per_image,
        precision=params.precision,
        learning_rate=params.learning_rate,
        halve_after=params.halve_after,
        clip_norm=params.clip_norm,
        train_from=params.train_from | ({} if params.fine_tune_words else {"words": params.epochs}),
        checkpoint_every=params.checkpoint_every,
        seed=params.seed,
        on_epoch=lambda row: log_metrics(row, step=int(row["epoch"])),
    )
    save_model(embedding, configuration, model.state_dict())
    pd.DataFrame(history).to_csv(embedding / "history.csv", index=False)
    best = max(history, key=lambda row: row["recall_sum"])
    return {"best_epoch": best["epoch"], "validation_recall_sum": best["recall_sum"]}


def _build_loss(part: Part, sorter: Path) -> Loss:
    takes_sorter = "sorter" in inspect.signature(find("bifocal.losses", part.name)).parameters
    given = {"sorter": load_sorter(sorter)} if takes_sorter else {}
    loss: Loss = build("bifocal.losses", part.name, **part.arguments, **given)
    return loss
