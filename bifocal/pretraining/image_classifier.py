"""Pretraining of BEAN's adaptation layer, and of its backbone, as a classifier of images."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from bifocal.backbones.trainable import random_crops
from bifocal.checkpoint import load_checkpoint, save_checkpoint
from bifocal.datasets import open_image
from bifocal.features.extraction import prefetch
from bifocal.features.extractors.pixels import Pixels
from bifocal.image_encoders.bean import BEANEncoder
from bifocal.pretraining.labeled_images import LabelledImages
from bifocal.progress import log_line, track


def pretrain_classifier(
    kind: Pixels,
    train: LabelledImages,
    validation: LabelledImages,
    *,
    maps: int,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    train_backbone: bool,
    checkpoints: Path,
    seed: int,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Train the adaptation with a post-pooling projection to the classes, which is thrown away.

    Engilberge et al., "Finding beans in burgers", CVPR 2018, section 4.1. Random crops as in training the embedding;
    softmax over exclusive classes, a logistic loss for each label otherwise. A run that was killed goes on after its
    last whole epoch.

    Args:
        kind: its backbone, with the weights to start from, trains in place.
        maps: D', of the adaptation.
        epochs: passes over the images.
        batch_size: images.
        learning_rate: of AdamW, falling to 0 as a cosine.
        weight_decay: of AdamW.
        train_backbone: whether the backbone learns too, or the adaptation alone.
        checkpoints: a directory of this run alone.

    Returns:
        ``adaptation.weight`` (D', D), and of the images of ``validation``: ``classifier_top1`` of exclusive classes,
        else ``classifier_ap``, mean average precision over the labels, both in [0, 1]; ``..._chance`` beside it.
    """
    torch.manual_seed(seed)
    device = kind.backbone.device
    model = BEANEncoder(
        dim=train.targets.shape[1],
        maps=maps,
        dropout=0.0,
        backbone=kind.backbone.name,
        image_size=kind.backbone.size,
        model_arguments=kind.backbone.model_arguments,
    ).to(device)
    assert model.backbone is not None
    model.backbone.network.load_state_dict(kind.backbone.network.state_dict())
    model.backbone.requires_grad_(train_backbone)
    optimizer = torch.optim.AdamW(
        [weight for weight in model.parameters() if weight.requires_grad], lr=learning_rate, weight_decay=weight_decay
    )
    last = checkpoints / "classifier.safetensors"
    first = load_checkpoint(last, model, optimizer)["epoch"] if last.is_file() else 0
    steps = math.ceil(len(train.paths) / batch_size)
    crop = min(model.crop or kind.backbone.size, kind.backbone.size)
    for epoch in range(first, epochs):
        # What is drawn in an epoch depends on it alone, so that a run that goes on draws the same.
        torch.manual_seed(seed * 10_007 + epoch)
        order = np.random.default_rng([seed, epoch]).permutation(len(train.paths))
        model.train(train_backbone)
        total = 0.0
        batches = _batches(kind, train, order, batch_size)
        for step, (pixels, targets) in enumerate(track(batches, f"classifier {epoch + 1}/{epochs}", total=steps)):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch + step / steps) / epochs))
            whole = torch.ones_like(pixels[:, 0], dtype=torch.bool)
            logits = _logits(model, random_crops(pixels.to(device).float(), whole, crop))
            loss = _loss(logits, targets.to(device), train.exclusive)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        save_checkpoint(last, model, optimizer, {"epoch": epoch + 1})
        log_line(f"classifier {epoch + 1}/{epochs}: loss {total / steps:.3f}")
    kind.backbone.network.load_state_dict(model.backbone.network.state_dict())
    return {"adaptation.weight": model.adaptation.weight.detach().cpu()}, _figures(kind, model.eval(), validation)


def _logits(model: BEANEncoder, pixels: Tensor) -> Tensor:
    maps = model.adapt(model.backbone_maps(pixels))
    pooled = model.pool(maps, maps.new_ones(maps.shape[:2], dtype=torch.bool))
    logits: Tensor = model.projection(pooled)
    return logits


def _loss(logits: Tensor, targets: Tensor, exclusive: bool) -> Tensor:
    if exclusive:
        return cross_entropy(logits, targets)
    known = ~targets.isnan()
    return binary_cross_entropy_with_logits(logits[known], targets[known])


def _batches(
    kind: Pixels, images: LabelledImages, order: NDArray[np.integer], size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Pixels (B, 3, S, S) uint8 and targets (B, K)."""
    pixels = prefetch(lambda path: kind.preprocess(open_image(path)), [images.paths[i] for i in order], 2 * size)
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        yield torch.stack([next(pixels) for _ in rows]), torch.from_numpy(images.targets[rows])


@torch.inference_mode()
def _figures(kind: Pixels, model: BEANEncoder, images: LabelledImages) -> dict[str, float]:
    device = next(model.parameters()).device
    batches = _batches(kind, images, np.arange(len(images.paths)), 32)
    scores = np.concatenate([_logits(model, pixels.to(device).float()).cpu().numpy() for pixels, _ in batches])
    if images.exclusive:
        top = (scores.argmax(axis=1) == images.targets.argmax(axis=1)).mean()
        return {"classifier_top1": float(top), "classifier_top1_chance": 1 / images.targets.shape[1]}
    precisions, chances = [], []
    for score, target in zip(scores.T, images.targets.T, strict=True):
        known = ~np.isnan(target)
        present = target[known] >= 0.5
        if present.any():
            precisions.append(average_precision_score(present, score[known]))
            chances.append(present.mean())
    return {"classifier_ap": float(np.mean(precisions)), "classifier_ap_chance": float(np.mean(chances))}
