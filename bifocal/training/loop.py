"""The only training loop."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bifocal.batch import Batch, BatchSource
from bifocal.progress import say, track
from bifocal.training.batches.base import Sampler
from bifocal.training.distributed import World
from bifocal.training.freezing import TrainFrom, build_optimizer, check_parts, learning_rate_at, set_stage
from bifocal.training.gradients import Precision, backward
from bifocal.training.prefetch import prefetch
from bifocal.training.sigterm import termination
from bifocal.training.state import Progress, State
from bifocal.training.validators.base import Validator
from bifocal.training.weight_averaging import average_weights


def fit(
    model: nn.Module,
    loss: nn.Module,
    pairs: BatchSource,
    validator: Validator,
    *,
    sampler: Sampler,
    checkpoints: Path,
    epochs: int,
    optimizer: Mapping[str, Any],
    learning_rate: float,
    decay_after: Sequence[float],
    decay_factor: float,
    clip_norm: float,
    train_from: TrainFrom,
    average: float,
    precision: Precision,
    micro_batch: int | None,
    checkpoint_every: int,
    seed: int,
    on_epoch: Callable[[dict[str, float]], None] = lambda row: None,
) -> list[dict[str, float]]:
    """Train ``model`` in place, end with the weights of its best epoch, and return one row of figures per epoch.

    A run that was killed and is called again with the same arguments goes on from its last checkpoint, and ends
    with the weights that it would have had (on a CPU, bit for bit). SIGTERM saves a checkpoint first, and exits with
    143. Where ``torch.distributed`` is initialised, its processes share every batch, and rank 0 alone writes.

    Args:
        model: ``model(batch) -> Scores``; for micro-batches and several processes see
            ``training.gradients.TwoTower``.
        loss: ``loss(scores, matches) -> scalar``; parameters and state of its own are trained and kept with the
            model's.
        validator: judges the model after every epoch and names the metric of the best: ``RecallValidator(pairs)``.
        sampler: the batches of an epoch, see ``training.sampling``.
        checkpoints: a directory of this run alone.
        epochs: how often the sampler is asked.
        optimizer: ``{"name": "Adam"}``, of ``torch.optim``, with its arguments.
        learning_rate: at the start.
        decay_after: epochs after each of which the learning rate is multiplied by ``decay_factor``; 1.5 is the middle
            of the second.
        clip_norm: the gradient's l2 norm is cut to this.
        train_from: ``{"text_encoder": 5}``: that part of the model, or part of a part, stays as it is for the first 5
            epochs; None: for all.
        average: decay of the exponential moving average of the weights, which is then what is validated and kept;
            0 for none.
        precision: of the matrix products in training ("bfloat16" is automatic mixed precision); weights, sums and
            the loss stay float32.
        micro_batch: images, and captions, that are encoded at once where memory is short; the loss still sees the whole
            batch. None for all.
        checkpoint_every: steps.
        seed: of the random numbers of each step, where several processes share it.
        on_epoch: called with each row: epoch (from 1), loss, learning_rate, and the metrics of ``validator``.

    Raises:
        FloatingPointError: the loss is no number; the step, its images and the state are left in ``checkpoints``.
        ValueError: ``train_from`` names no part of the model.
        SystemExit: SIGTERM came.
    """
    check_parts(model, train_from)
    world, device = World.present(), next(model.parameters()).device
    averaged = average_weights(model, average) if average else None
    judged = model if averaged is None else averaged.module
    whole = nn.ModuleDict({"model": model, "loss": loss.to(device)} | ({"average": averaged} if averaged else {}))
    parameters = [*model.parameters(), *loss.parameters()]
    descent = build_optimizer(optimizer, parameters, learning_rate)
    state = State(checkpoints, whole, descent, world)
    first_epoch, first_step, total, history = state.restore()
    best_of = validator.monitor
    rate_at = partial(learning_rate_at, learning_rate=learning_rate, decay_after=decay_after, decay_factor=decay_factor)
    start, images, note = time.monotonic(), 0, _Note()

    with termination() as asked_to_end:
        for epoch in range(first_epoch, epochs):
            batches = state.batches(sampler, epoch)
            set_stage(model, train_from, epoch)
            loss.train()
            read = partial(pairs.batch, rank=world.rank, ranks=world.size)
            steps: Iterable[tuple[int, Batch]] = enumerate(prefetch(read, batches[first_step:]), start=first_step)
            if world.writes:
                task = f"epoch {epoch + 1}/{epochs}"
                steps = track(steps, task, total=len(batches), done=first_step, note=lambda: note.text)
            for step, batch in steps:
                batch = batch.to(device)
                rate = rate_at(epoch + step / len(batches))
                for group in descent.param_groups:
                    group["lr"] = rate
                descent.zero_grad()
                value = backward(
                    model,
                    loss,
                    batch,
                    precision=precision,
                    micro_batch=micro_batch,
                    seed=((seed * 10_007 + epoch) * 1_000_003 + step * world.size) % 2**63,
                    world=world,
                )
                if not torch.isfinite(value):
                    state.refuse(value, Progress(epoch, step, total, history), batch)
                world.average_gradients(parameters)
                nn.utils.clip_grad_norm_(parameters, clip_norm)
                descent.step()
                world.average_statistics(model)
                if averaged is not None:
                    averaged.update_parameters(model)
                total += value.item()
                images += len(batch.image_ids)
                pace = images / (time.monotonic() - start)
                note.text = f"loss {total / (step + 1):.4f}, learning rate {rate:.3g}, {pace:.0f} images a second"
                if world.any(asked_to_end(), device):
                    state.terminate(Progress(epoch, step + 1, total, history))
                if (step + 1) % checkpoint_every == 0 and step + 1 < len(batches):
                    state.save(Progress(epoch, step + 1, total, history))

            rate = rate_at(epoch + (len(batches) - 1) / len(batches))
            row = {"epoch": epoch + 1, "loss": total / len(batches), "learning_rate": rate}
            row |= world.from_first(lambda: validator(judged))
            if row[best_of] > max((former[best_of] for former in history), default=-torch.inf):
                state.save_best(judged, epoch)
            history.append(row)
            first_step, total = 0, 0.0
            state.save(Progress(epoch + 1, 0, 0.0, history))
            if world.writes:
                left = (time.monotonic() - start) / (epoch + 1 - first_epoch) * (epochs - epoch - 1)
                say(_line(row, best_of, epochs, left))
                on_epoch(row)
            if world.any(asked_to_end(), device):
                state.terminate(Progress(epoch + 1, 0, 0.0, history))

    loss.eval()
    state.load_best(model)
    return history


@dataclass
class _Note:
    """What the progress says of the last step."""

    text: str = ""


def _line(row: Mapping[str, float], best_of: str, epochs: int, seconds_left: float) -> str:
    told = {"caption_retrieval.R@1": "caption R@1", "image_retrieval.R@1": "image R@1", best_of: best_of}
    figures = ", ".join(f"{name.replace('_', ' ')} {row[key]:.1f}" for key, name in told.items() if key in row)
    return (
        f"epoch {row['epoch']:.0f}/{epochs}: loss {row['loss']:.4f}, validation {figures}; "
        f"about {seconds_left / 60:.0f} min left"
    )
