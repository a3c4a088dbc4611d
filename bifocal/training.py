"""The only training loop."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bifocal.batch import Batch, Pairs
from bifocal.checkpoint import load_checkpoint, read_tensors, save_checkpoint, write_tensors
from bifocal.embedding import embed
from bifocal.metrics import retrieval_ranks, summarize
from bifocal.models import TwoBranchModel
from bifocal.progress import say, track
from bifocal.scores import Scores

Loss = Callable[[Scores, Tensor], Tensor]
Precision = Literal["float32", "bfloat16"]


def fit(
    model: TwoBranchModel,
    loss: Loss,
    pairs: Pairs,
    validation: Pairs,
    *,
    checkpoints: Path,
    epochs: int,
    batch_size: int,
    captions_per_image: int,
    precision: Precision,
    learning_rate: float,
    halve_after: Sequence[int],
    clip_norm: float,
    train_from: Mapping[str, int],
    checkpoint_every: int,
    seed: int,
    on_epoch: Callable[[dict[str, float]], None] = lambda row: None,
) -> list[dict[str, float]]:
    """Train ``model`` in place, end with the weights of its best epoch, and return one row of figures per epoch.

    A run that was killed and is called again with the same arguments goes on from its last checkpoint, and ends
    with the weights that it would have had (on a CPU, bit for bit).

    Args:
        checkpoints: a directory of this run alone.
        epochs: passes over all captions of ``pairs``.
        batch_size: captions; their images come once each.
        captions_per_image: most captions of an image that share a batch, and the work of encoding it.
        precision: of the matrix products in training ("bfloat16" is automatic mixed precision); weights, sums and
            the loss stay float32.
        learning_rate: of Adam.
        halve_after: the learning rate is halved after each of these epochs.
        clip_norm: the gradient's l2 norm is cut to this.
        train_from: ``{"text_encoder": 5}``: that part of the model stays as it is for the first 5 epochs.
        checkpoint_every: steps.
        on_epoch: called with each row: epoch (from 1), loss, learning_rate, validation R@K in percent of both
            directions, and their sum ``recall_sum`` (of R@1, R@5, R@10), by which the best epoch is chosen.

    Raises:
        FloatingPointError: the loss is no number; the step, its images and the state are left in ``checkpoints``.
        ValueError: ``train_from`` names no part of the model.
    """
    for part in train_from:
        if part not in dict(model.named_children()):
            raise ValueError(
                f"train_from: the model has no {part!r}; it has {[name for name, _ in model.named_children()]}"
            )
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    last, best = checkpoints / "last.safetensors", checkpoints / "best.safetensors"
    history: list[dict[str, float]] = []
    first_epoch, first_step, total = 0, 0, 0.0
    if last.is_file():
        progress = load_checkpoint(last, model, optimizer)
        first_epoch, first_step, total = progress["epoch"], progress["step"], progress["total"]
        history = progress["history"]
        say(f"going on from epoch {first_epoch + 1}, step {first_step}")

    for epoch in range(first_epoch, epochs):
        rate = learning_rate * 0.5 ** sum(epoch >= milestone for milestone in halve_after)
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, child in model.named_children():
            child.requires_grad_(epoch >= train_from.get(name, 0))
        batches = epoch_batches(pairs.image_of_caption, batch_size, captions_per_image, seed, epoch)
        model.train()
        steps = enumerate(prefetch(pairs, batches[first_step:]), start=first_step)
        for step, batch in track(steps, f"epoch {epoch + 1}/{epochs}", total=len(batches), done=first_step):
            batch = batch.to(model.device)
            with torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                scores = model(batch)
            value = loss(scores.float(), batch.matches)
            if not torch.isfinite(value):
                _refuse(value, epoch, step, batch, checkpoints, model, optimizer)
            optimizer.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()
            total += value.item()
            if (step + 1) % checkpoint_every == 0 and step + 1 < len(batches):
                save_checkpoint(last, model, optimizer, _progress(epoch, step + 1, total, history))

        row = {"epoch": epoch + 1, "loss": total / len(batches), "learning_rate": rate} | validate(model, validation)
        if row["recall_sum"] > max((former["recall_sum"] for former in history), default=-1.0):
            write_tensors(best, model.state_dict(), {"epoch": epoch + 1})
        history.append(row)
        first_step, total = 0, 0.0
        save_checkpoint(last, model, optimizer, _progress(epoch + 1, 0, 0.0, history))
        say(
            f"epoch {epoch + 1}/{epochs}: loss {row['loss']:.4f}, validation caption R@1 "
            f"{row['caption_retrieval.R@1']:.1f}, image R@1 {row['image_retrieval.R@1']:.1f}, "
            f"recall sum {row['recall_sum']:.1f}"
        )
        on_epoch(row)

    model.load_state_dict(read_tensors(best)[0])
    return history


def epoch_batches(
    image_of_caption: Tensor, batch_size: int, captions_per_image: int, seed: int, epoch: int
) -> list[Tensor]:
    """Every caption row once, in the random order of one epoch, in batches of nearly equal size.

    The captions of an image are dealt at random into groups of ``captions_per_image``, and a group stays in one
    batch; so a batch has up to that many positives for each of its images.

    Shape:
        image_of_caption (M,) int64 -> about M / batch_size tensors of rows.
    """
    generator = torch.Generator().manual_seed(seed * 10_007 + epoch)
    order = torch.randperm(len(image_of_caption), generator=generator)
    order = order[image_of_caption[order].argsort(stable=True)]
    counts = image_of_caption.bincount()
    place = torch.arange(len(order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    groups, group = torch.stack([image_of_caption[order], place // captions_per_image]).unique(
        dim=1, return_inverse=True
    )
    count = groups.shape[1]
    shuffled = torch.randperm(count, generator=generator)[group]
    batches = -(-len(order) // batch_size)
    batch = shuffled * batches // count
    rows = order[shuffled.argsort(stable=True)]
    return list(rows.split(batch.bincount(minlength=batches).tolist()))


def prefetch(pairs: Pairs, batches: Sequence[Tensor]) -> Iterator[Batch]:
    """The batches in order, each read from the stores while the one before it is worked on."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        following = [reader.submit(pairs.batch, rows) for rows in batches[:1]]
        for index in range(len(batches)):
            batch = following.pop().result()
            following = [reader.submit(pairs.batch, rows) for rows in batches[index + 1 : index + 2]]
            yield batch


def validate(model: TwoBranchModel, validation: Pairs) -> dict[str, float]:
    """R@1, R@5, R@10 in percent of both directions, and their sum."""
    images, captions = embed(model, validation)
    report = summarize(retrieval_ranks(images, captions, validation.image_of_caption), (1, 5, 10))
    figures = {f"{direction}.R@{k}": values[f"R@{k}"] for direction, values in report.items() for k in (1, 5, 10)}
    return figures | {"recall_sum": sum(figures.values())}


def _progress(epoch: int, step: int, total: float, history: list[dict[str, float]]) -> dict[str, Any]:
    return {"epoch": epoch, "step": step, "total": total, "history": history}


def _refuse(
    value: Tensor,
    epoch: int,
    step: int,
    batch: Batch,
    checkpoints: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> None:
    state = checkpoints / "not_a_number.safetensors"
    save_checkpoint(state, model, optimizer, _progress(epoch, step, 0.0, []))
    (checkpoints / "not_a_number.json").write_text(
        json.dumps({"epoch": epoch + 1, "step": step, "images": batch.image_ids})
    )
    raise FloatingPointError(
        f"the loss is {value.item()} at epoch {epoch + 1}, step {step}; its images are in "
        f"{checkpoints}/not_a_number.json and the state in {state}: lower the learning rate or clip_norm, "
        "or look at the features of these images"
    )
