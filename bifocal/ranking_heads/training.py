"""Train a ranking head on stored features with any loss on scores."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bifocal.features import RegionBatch
from bifocal.ranking_heads.labeled import LabeledFeatures, MetricName, pool_by_group, score
from bifocal.scores import Scores
from bifocal.training.loop import Row, TrainingTask, run_epochs
from bifocal.training.schedules import Constant, Schedule
from bifocal.training.state import RunState

PREDICTION_BATCH_SIZE = 256


def fit_head(
    head: nn.Module,
    loss: nn.Module,
    train: LabeledFeatures,
    validation: LabeledFeatures,
    *,
    metric: MetricName,
    checkpoints: Path,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    schedule: Schedule = Constant(),  # noqa: B008 - immutable
    seed: int,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Train ``head`` in place with Adam, load the weights of its best epoch, and return the history.

    Parameters and buffers of the loss (a sorter that is fine-tuned) are trained and saved with the head. An interrupted
    run resumes at its last checkpoint, see ``run_epochs``.

    Args:
        loss: ``loss(scores, matches) -> scalar`` with ``scores.cross`` (C labels, images of the batch).
        metric: chooses the best epoch: "spearman" for graded labels, "average_precision" for labels 0 and 1.
        checkpoints: a directory of this run alone.
        batch_size: images of every batch, since a sorter may accept one length only; the last batch of an epoch is
            completed with images of the first.
        learning_rate: base learning rate, which ``schedule`` multiplies.
        on_epoch: called with each row: epoch, loss, learning_rate, and the metric under its name.

    Raises:
        ValueError: there are fewer images than ``batch_size``, or the splits have different labels.
        FloatingPointError: the loss is NaN or infinite.
    """
    if len(train) < batch_size:
        raise ValueError(f"batch_size is {batch_size}, but the split has {len(train)} images with a label: lower it")
    if train.labels != validation.labels:
        raise ValueError(f"the splits have different labels: training {train.labels}, validation {validation.labels}")
    loss.to(next(head.parameters()).device)
    parameters = [parameter for parameter in (*head.parameters(), *loss.parameters()) if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, learning_rate)
    state = RunState(checkpoints, {"head": head, "loss": loss}, optimizer, eval_model=head)
    task = _HeadTask(head, loss, train, validation, metric, batch_size, seed)
    history = run_epochs(task, state, epochs=epochs, learning_rate=learning_rate, schedule=schedule, on_epoch=on_epoch)
    state.load_best(head)
    head.eval()
    return history


@dataclass
class _HeadTask(TrainingTask[Tensor]):
    head: nn.Module
    loss: nn.Module
    train: LabeledFeatures
    validation: LabeledFeatures
    metric: MetricName
    batch_size: int
    seed: int

    name = "ranking head"

    def __post_init__(self) -> None:
        self.monitor = self.metric
        self.device = next(self.head.parameters()).device

    def batches(self, epoch: int, first_step: int) -> tuple[int, Tensor]:
        rows = epoch_batches(len(self.train), self.batch_size, self.seed, epoch)
        return len(rows), rows[first_step:]

    def start_epoch(self, epoch: int) -> None:
        self.head.train()
        self.loss.train()

    def backward(self, batch: Tensor, epoch: int, step: int) -> Tensor:
        scores = Scores(_scores(self.head, self.train.batch(batch), self.device).T)
        value: Tensor = self.loss(scores, self.train.targets(batch, self.metric).to(self.device))
        value.backward()
        return value.detach()

    def validate(self) -> dict[str, float]:
        predictions = pool_by_group(self.validation, predict(self.head, self.validation))
        return {self.metric: score(predictions, self.metric)}

    def size(self, batch: Tensor) -> int:
        return len(batch)

    def describe(self, batch: Tensor) -> dict[str, list[str]]:
        return {"images": [self.train.image_ids[row] for row in batch.tolist()]}


def epoch_batches(count: int, batch_size: int, seed: int, epoch: int) -> Tensor:
    """Return every index once, in random order; the last batch is completed from the first.

    Shape:
        -> (batches, batch_size) int64.

    Example:
        >>> epoch_batches(5, batch_size=3, seed=0, epoch=0).shape
        torch.Size([2, 3])
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 10_007 + epoch))
    batches = -(-count // batch_size)
    return torch.cat([order, order[: batches * batch_size - count]]).view(batches, batch_size)


def predict(head: nn.Module, samples: LabeledFeatures) -> Tensor:
    """Return the scores of all images, (n, C) float32 on the CPU; leave the head in evaluation mode."""
    head.eval()
    device = next(head.parameters()).device
    with torch.inference_mode():
        return torch.cat([_scores(head, regions, device).cpu() for regions in _read(samples)])


def _read(samples: LabeledFeatures) -> Iterator[RegionBatch]:
    return (samples.batch(rows) for rows in torch.arange(len(samples)).split(PREDICTION_BATCH_SIZE))


def _scores(head: nn.Module, regions: RegionBatch, device: torch.device) -> Tensor:
    scores: Tensor = head(regions.features.to(device).float(), regions.mask.to(device))
    return scores
