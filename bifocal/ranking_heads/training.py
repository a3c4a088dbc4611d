"""Fitting a head over stored features with any loss on scores."""

from collections.abc import Callable, Iterator
from math import inf, isnan
from pathlib import Path

import torch
from torch import Tensor, nn

from bifocal.checkpoint import load_checkpoint, read_tensors, save_checkpoint, write_tensors
from bifocal.features import RegionBatch
from bifocal.ranking_heads.labeled import LabelledImages, Measure, judge, measure
from bifocal.scores import Scores

IMAGES_AT_ONCE = 256


def fit_head(
    head: nn.Module,
    loss: nn.Module,
    train: LabelledImages,
    validation: LabelledImages,
    *,
    kind: Measure,
    checkpoints: Path,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    halve_every: int,
    seed: int,
    on_epoch: Callable[[dict[str, float]], None] = lambda row: None,
) -> list[dict[str, float]]:
    """Train ``head`` in place, end with the weights of its best epoch, and return one row of figures per epoch.

    What the loss has of its own, the weights of a sorter that is fine-tuned and the count of its alignment, is trained
    and kept with the head. A run that was killed and is called again goes on after its last whole epoch, and ends with
    the weights that it would have had (on a CPU, bit for bit).

    Args:
        loss: loss(scores, matches) -> scalar; its scores.cross are (C labels, images of the batch).
        kind: "spearman" for graded labels, "average_precision" for labels that are 0 or 1.
        checkpoints: a directory of this run alone.
        batch_size: images, of every batch: a sorter may rank one length alone. The last batch of an epoch is filled
            up with images of the first.
        learning_rate: of Adam (thesis 5.5.1: 0.001).
        halve_every: epochs after which it is halved (there: 3).
        on_epoch: called with each row: epoch (from 1), loss, learning_rate, and ``validation``, the measure.

    Raises:
        ValueError: there are fewer images than ``batch_size``; the splits have other labels.
        FloatingPointError: the loss is no number.
    """
    if len(train) < batch_size:
        raise ValueError(f"batch_size is {batch_size}, but the split has {len(train)} images with a label: lower it")
    if train.labels != validation.labels:
        raise ValueError(f"the splits have other labels: {train.labels} to train on, {validation.labels} to validate")
    device = next(head.parameters()).device
    whole = nn.ModuleDict({"head": head, "loss": loss.to(device)})
    adam = torch.optim.Adam([weight for weight in whole.parameters() if weight.requires_grad], learning_rate)
    last, best = checkpoints / "last.safetensors", checkpoints / "best.safetensors"
    history: list[dict[str, float]] = load_checkpoint(last, whole, adam)["history"] if last.is_file() else []
    for epoch in range(len(history), epochs):
        rate = learning_rate * 0.5 ** (epoch // halve_every)
        adam.param_groups[0]["lr"] = rate
        whole.train()
        total, batches = 0.0, epoch_batches(len(train), batch_size, seed, epoch)
        for step, images in enumerate(batches):
            scores = Scores(_scores(head, train.batch(images), device).T)
            value = loss(scores, train.targets(images, kind).to(device))
            if not torch.isfinite(value):
                raise FloatingPointError(
                    f"the loss is {value.item()} at epoch {epoch + 1}, step {step}: lower the learning rate"
                )
            adam.zero_grad()
            value.backward()
            adam.step()
            total += value.item()
        found = measure(judge(validation, predict(head, validation)), kind)
        row = {"epoch": epoch + 1, "loss": total / len(batches), "learning_rate": rate, "validation": found}
        # It is no number where the head gives all images the same score.
        former = max((row["validation"] for row in history if not isnan(row["validation"])), default=-inf)
        if not history or found > former:
            write_tensors(best, head.state_dict(), {"epoch": epoch + 1})
        history.append(row)
        save_checkpoint(last, whole, adam, {"history": history})
        on_epoch(row)
    head.load_state_dict(read_tensors(best)[0])
    head.eval()
    return history


def epoch_batches(count: int, batch_size: int, seed: int, epoch: int) -> Tensor:
    """Every image once, in the random order of one epoch; the last batch filled up from the first.

    Shape:
        -> (batches, batch_size) int64.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 10_007 + epoch))
    batches = -(-count // batch_size)
    return torch.cat([order, order[: batches * batch_size - count]]).view(batches, batch_size)


def predict(head: nn.Module, samples: LabelledImages) -> Tensor:
    """Scores of all images, (n, C) float32 on the CPU; leaves the head in evaluation mode."""
    head.eval()
    device = next(head.parameters()).device
    with torch.inference_mode():
        return torch.cat([_scores(head, regions, device).cpu() for regions in _batches(samples)])


def _batches(samples: LabelledImages) -> Iterator[RegionBatch]:
    return (samples.batch(rows) for rows in torch.arange(len(samples)).split(IMAGES_AT_ONCE))


def _scores(head: nn.Module, regions: RegionBatch, device: torch.device) -> Tensor:
    scores: Tensor = head(regions.features.to(device).float(), regions.mask.to(device))
    return scores
