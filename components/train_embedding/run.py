"""How train_embedding works."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from bifocal.batch import Pairs
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.losses import SemanticTripletLoss
from bifocal.mining import MiningSampler, SemanticPairs, SemanticValidation, relevant_images
from bifocal.models import TwoBranchModel, build_model, save_model
from bifocal.registry import build, find
from bifocal.sorters import load_sorter
from bifocal.text import TextStore
from bifocal.training import (
    Recall,
    Sampler,
    Validation,
    World,
    add_captions,
    distinct_batches,
    epoch_batches,
    fit,
    recompute_activations,
    torchrun_world,
)
from components.spec import Part
from components.tracking import log_metrics
from components.train_embedding.spec import TrainEmbeddingParams


def run(
    params: TrainEmbeddingParams, *, dataset: Path, features: Path, text: Path, sorter: Path, embedding: Path
) -> dict[str, float]:
    """Train on the split "train", choose the epoch on "val", write the model and its history."""
    with torchrun_world() as (_, device):
        history, chosen_by = _train(params, device, dataset, features, text, sorter, embedding)
    best = max(history, key=lambda row: row[chosen_by])
    return {"best_epoch": best["epoch"]} | {f"validation_{name}": best[name] for name in {"recall_sum", chosen_by}}


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
    tables, images, captions = read_dataset(dataset), FeatureStore(features), TextStore(text)
    configuration: dict[str, Any] = {
        "model": {"name": params.model.name, **params.model.arguments},
        "image_encoder": {"name": params.image_encoder.name, **params.image_encoder.arguments},
        "text_encoder": {"name": params.text_encoder.name, **params.text_encoder.arguments},
        "dim": params.dim,
        "feature_dim": images.dim,
        "text_dim": captions.dim,
        "text_kind": captions.kind,
        "words": len(captions.vocabulary) if captions.kind == "tokens" else None,
    }
    model = build_model(**configuration)
    if model.words is not None:
        model.words.weight.data.copy_(captions.word_vectors)
    start = getattr(model.image_encoder, "initialise", None)
    if start is not None:
        start(features)
    if params.gradient_checkpointing:
        recompute_activations(model)
    model.to(device)
    waiting = {} if params.fine_tune_words or model.words is None else {"words": None}
    train, val = (Pairs(tables.split(split), images, captions) for split in ("train", "val"))
    loss = _build_loss(params.loss, sorter)
    pairs, sampler = (train, _sampler(params, train)) if params.mining is None else _mined(params, train, model, loss)
    validation: Validation = Recall(val) if params.mining is None else SemanticValidation(SemanticPairs(val))
    history = fit(
        model,
        loss,
        pairs,
        validation,
        sampler=sampler,
        checkpoints=embedding / "checkpoints",
        epochs=params.epochs,
        optimizer={"name": params.optimizer.name, **params.optimizer.arguments},
        learning_rate=params.learning_rate,
        decay_after=params.decay_after,
        decay_factor=params.decay_factor,
        clip_norm=params.clip_norm,
        train_from=params.train_from | waiting,
        average=params.average,
        precision=params.precision,
        micro_batch=params.micro_batch,
        checkpoint_every=params.checkpoint_every,
        seed=params.seed,
        on_epoch=lambda row: log_metrics(row, step=int(row["epoch"])),
    )
    if World.present().writes:
        save_model(embedding, configuration, model.state_dict())
        pd.DataFrame(history).to_csv(embedding / "history.csv", index=False)
    return history, validation.chosen_by


def _sampler(params: TrainEmbeddingParams, train: Pairs) -> Sampler:
    rows, size, seed = train.image_of_caption, params.batch_size, params.seed

    def sample(epoch: int) -> Sequence[Tensor]:
        if params.distinct_images:
            drawn = distinct_batches(rows, size, seed, epoch)
        else:
            drawn = epoch_batches(rows, size, params.captions_per_image, seed, epoch)
        return add_captions(rows, drawn, params.added_captions, seed, epoch) if params.added_captions else drawn

    return sample


def _mined(
    params: TrainEmbeddingParams, train: Pairs, model: nn.Module, loss: nn.Module
) -> tuple[SemanticPairs, Sampler]:
    if params.mining is None or not isinstance(model, TwoBranchModel) or not isinstance(loss, SemanticTripletLoss):
        raise ValueError(
            "mined triplets are for a TwoBranchModel with a SemanticTripletLoss, not for a "
            f"{type(model).__name__} with a {type(loss).__name__}: set mining to null"
        )
    pairs, arguments = SemanticPairs(train), params.mining.model_dump()
    relevant = relevant_images(pairs, arguments.pop("neighbours"))
    sampler = MiningSampler(model, pairs, relevant, params.batch_size, params.seed, margin=loss.margin, **arguments)
    return pairs, sampler


def _build_loss(part: Part, sorter: Path) -> nn.Module:
    takes_sorter = "sorter" in inspect.signature(find("bifocal.losses", part.name)).parameters
    given = {"sorter": load_sorter(sorter)} if takes_sorter else {}
    loss: nn.Module = build("bifocal.losses", part.name, **part.arguments, **given)
    return loss
