"""Training of a ranking head, and the backbone below it, with any loss on scores, in phases."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bifocal.datasets.prefetch import prefetch
from bifocal.features import RegionBatch
from bifocal.models.batch import to_device
from bifocal.ranking_heads.labeled import (
    GroupPredictions,
    LabeledFeatures,
    MetricName,
    pool_by_group,
    score,
)
from bifocal.ranking_heads.model import RankingModel
from bifocal.scores import Scores
from bifocal.training.checkpoints import RunState
from bifocal.training.distributed import batch_norms
from bifocal.training.gradients import CachedEncodings
from bifocal.training.loop import Row, TrainingTask, numbered_row, report_row, run_epochs
from bifocal.training.optimizers import (
    FreezeSchedule,
    Phase,
    StepOptions,
    apply_freezing,
    build_optimizer,
    check_phases,
    parameter_groups,
)
from bifocal.training.precision import autocast_for

PREDICTION_BATCH_SIZE = 128


class HeadBatch(NamedTuple):
    """Images of a batch, (B,) int64, and their features or pixels."""

    images: Tensor
    regions: RegionBatch


def fit_head(
    model: RankingModel,
    loss: nn.Module,
    train: LabeledFeatures,
    validation: LabeledFeatures,
    phase: Phase,
    *,
    metric: MetricName,
    checkpoints: Path,
    batch_size: int,
    options: StepOptions = StepOptions(),
    seed: int,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Train ``model`` in place, load the weights of its best epoch, and return the history.

    The loss ranks ``batch_size`` images in every batch, since a sorter may accept one length only:
    ``scores.cross`` is (C labels, images). Parameters and buffers of the loss, such as a sorter,
    are trained and saved with the model. ``metric`` chooses the best epoch; phase and options
    are as in ``bifocal.training.fit``, and resume is as in ``run_epochs``.
    """
    if len(train) < batch_size:
        raise ValueError(
            f"batch_size is {batch_size}, but the split has {len(train)} images with a label: "
            "lower it"
        )
    if train.labels != validation.labels:
        raise ValueError(
            f"the splits have different labels: training {train.labels}, validation "
            f"{validation.labels}"
        )
    loss.to(next(model.parameters()).device)
    groups = parameter_groups(model, phase.learning_rate_factors)
    own = [parameter for parameter in loss.parameters() if parameter.requires_grad]
    built = build_optimizer(
        options.optimizer, [*groups, *([{"params": own}] if own else [])], phase.learning_rate
    )
    state = RunState(checkpoints, {"model": model, "loss": loss}, built, eval_model=model)
    task = _HeadTask(
        model, loss, train, validation, metric, batch_size, phase.frozen_until, options, seed
    )
    history = run_epochs(
        task,
        state,
        epochs=phase.epochs,
        learning_rate=phase.learning_rate,
        schedule=phase.schedule,
        max_grad_norm=options.max_grad_norm,
        checkpoint_every_seconds=options.checkpoint_every_seconds,
        on_epoch=on_epoch,
    )
    state.load_best(model)
    model.eval()
    return history


@dataclass
class _HeadTask(TrainingTask[HeadBatch]):
    model: RankingModel
    loss: nn.Module
    train: LabeledFeatures
    validation: LabeledFeatures
    metric: MetricName
    batch_size: int
    frozen_until: FreezeSchedule
    options: StepOptions
    seed: int

    name = "ranking head"

    def __post_init__(self) -> None:
        self.monitor = self.metric
        self.device = next(self.model.parameters()).device
        self.cast, self.norms = (
            autocast_for(self.device.type, self.options.precision),
            batch_norms(self.model),
        )

    def batches(self, epoch: int, first_step: int) -> tuple[int, Iterator[HeadBatch]]:
        rows = epoch_batches(len(self.train), self.batch_size, self.seed, epoch)
        batches = prefetch(
            lambda some: HeadBatch(some, self.train.batch(some)),
            rows[first_step:],
            ahead=1,
            threads=1,
        )
        return len(rows), batches

    def start_epoch(self, epoch: int) -> None:
        apply_freezing(self.model, self.frozen_until, epoch)
        self.loss.train()

    def backward(self, batch: HeadBatch, epoch: int, step: int) -> Tensor:
        regions = to_device(batch.regions, self.device)
        targets = self.train.targets(batch.images, self.metric).to(self.device)
        return backward_scores(
            self.model,
            self.loss,
            regions,
            targets,
            self.options.micro_batch_size,
            self.cast,
            self.norms,
        )

    def validate(self) -> dict[str, float]:
        predictions = pool_by_group(self.validation, predict(self.model, self.validation))
        return {self.metric: score(predictions, self.metric)}

    def size(self, batch: HeadBatch) -> int:
        return len(batch.images)

    def describe(self, batch: HeadBatch) -> dict[str, list[str]]:
        return {"images": [self.train.image_ids[row] for row in batch.images.tolist()]}


def backward_scores(
    model: RankingModel,
    loss: nn.Module,
    regions: RegionBatch,
    targets: Tensor,
    micro_batch_size: int | None,
    cast: Callable[[], torch.autocast],
    norms: Sequence[nn.modules.batchnorm._NormBase],
) -> Tensor:
    """Add the gradients of a batch's loss to the parameters' gradients, and return the loss;
    ``targets`` are (C, B)."""
    scores = CachedEncodings(
        lambda chunk: _scores(model, chunk), regions, micro_batch_size, cast, norms
    )
    value: Tensor = loss(Scores(scores.encodings[0].float().T), targets)
    value.backward()
    scores.backpropagate()
    return value.detach()


def epoch_batches(count: int, batch_size: int, seed: int, epoch: int) -> Tensor:
    """Return (batches, batch_size) indices in random order; the last batch is completed from the
    first."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 10_007 + epoch))
    batches = -(-count // batch_size)
    return torch.cat([order, order[: batches * batch_size - count]]).view(batches, batch_size)


def predict(model: RankingModel, samples: LabeledFeatures) -> Tensor:
    """Return the scores of all images, (n, C) float32 on the CPU; leave the model in evaluation
    mode."""
    model.eval()
    device = next(model.parameters()).device
    batches = prefetch(
        samples.batch, torch.arange(len(samples)).split(PREDICTION_BATCH_SIZE), ahead=1, threads=1
    )
    with torch.inference_mode():
        return torch.cat([_scores(model, to_device(regions, device)).cpu() for regions in batches])


def _scores(model: RankingModel, regions: RegionBatch) -> Tensor:
    scores: Tensor = model(regions.features.float(), regions.mask)
    return scores


def fit_phases(
    model: RankingModel,
    loss: nn.Module,
    train: LabeledFeatures,
    validation: LabeledFeatures,
    phases: Sequence[Phase],
    *,
    metric: MetricName,
    checkpoints: Path,
    batch_size: int,
    options: StepOptions = StepOptions(),
    seed: int,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Train ``model`` in place, each phase from the best weights of the phase before, and return
    the history.

    Thesis 5.5.1 trains the head for 15 epochs, then the whole model. A phase that does not improve
    the metric is undone. All phases share ``loss`` and ``options``; the history
    adds the column phase.
    """
    check_phases(model, phases)
    history: list[Row] = []
    best = -inf
    for index, phase in enumerate(phases):
        before = copy.deepcopy(model.state_dict())
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        numbered = partial(numbered_row, phase=index, first_epoch=len(history), monitor=metric)
        rows = fit_head(
            model,
            loss,
            train,
            validation,
            phase,
            metric=metric,
            checkpoints=checkpoints / f"phase-{index}",
            seed=seed + index,
            on_epoch=partial(report_row, on_epoch, numbered),
            batch_size=batch_size,
            options=options,
        )
        for parameter in trainable:  # the modules that this phase froze may train in the next
            parameter.requires_grad_(True)
        history += map(numbered, rows)
        achieved = max((row[metric] for row in rows if not isnan(row[metric])), default=-inf)
        if index > 0 and achieved <= best:
            model.load_state_dict(before)
        best = max(best, achieved)
    return history


@dataclass(frozen=True)
class RankingResult:
    """Training history, best metric on "val", and metric and predictions on "test"."""

    history: list[Row]
    validation: float
    test: float
    predictions: GroupPredictions


def fit_and_test(
    model: RankingModel,
    loss: nn.Module,
    splits: Mapping[str, LabeledFeatures],
    phases: Sequence[Phase],
    *,
    metric: MetricName,
    **options: Any,
) -> RankingResult:
    """Train on "train", choose epochs on "val", and measure on "test"; ``options`` are arguments of
    ``fit_phases``."""
    history = fit_phases(
        model, loss, splits["train"], splits["val"], phases, metric=metric, **options
    )
    pooled = pool_by_group(splits["test"], predict(model, splits["test"]))
    best = max((row[metric] for row in history if not isnan(row[metric])), default=nan)
    return RankingResult(history, best, score(pooled, metric), pooled)
