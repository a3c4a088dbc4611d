"""The phases of a training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from bifocal.registry import build
from bifocal.sorters import load_sorter
from bifocal.training.batches import CaptionBatches, DistinctImageBatches, MinedTriplets, PhraseBoxes
from bifocal.training.batches.base import Batches, PreparedBatches, TrainingInputs
from components.train_embedding.spec import PhrasesParams, TrainEmbeddingParams


@dataclass(frozen=True)
class Lesson:
    """One phase; its name is that of the folder of its checkpoints."""

    name: str
    prepared: PreparedBatches
    loss: nn.Module
    epochs: int
    learning_rate: float
    decay_after: Sequence[float]
    train_from: Mapping[str, int | None]


def lessons(params: TrainEmbeddingParams, model: nn.Module, inputs: TrainingInputs, sorter: Path) -> list[Lesson]:
    """Return the phases in order."""
    if params.phrases is not None:
        return _phrases(params, params.phrases, model, inputs, sorter)
    loss = build("bifocal.losses", params.loss, sorter=load_sorter(sorter))
    prepared = _batches(params).prepare(inputs, model=model, loss=loss, seed=params.seed)
    return [_first(params, loss, prepared)]


def _first(params: TrainEmbeddingParams, loss: nn.Module, prepared: PreparedBatches) -> Lesson:
    return Lesson(
        name="first",
        prepared=prepared,
        loss=loss,
        epochs=params.epochs,
        learning_rate=params.learning_rate,
        decay_after=params.decay_after,
        train_from=params.train_from,
    )


def _batches(params: TrainEmbeddingParams) -> Batches:
    if params.mining is not None:
        mining = params.mining
        return MinedTriplets(
            params.batch_size,
            mining.neighbours,
            mining.queries,
            mining.relevant_each,
            mining.hardest,
            mining.updates,
        )
    if params.distinct_images:
        return DistinctImageBatches(params.batch_size)
    return CaptionBatches(params.batch_size, params.captions_per_image, params.added_captions)


def _phrases(
    params: TrainEmbeddingParams, phrases: PhrasesParams, model: nn.Module, inputs: TrainingInputs, sorter: Path
) -> list[Lesson]:
    first, tuning = PhraseBoxes(params.batch_size, phrases.boxes_each), phrases.fine_tuning
    loss = build("bifocal.losses", params.loss, sorter=load_sorter(sorter))
    lesson = _first(params, loss, first.prepare(inputs, model=model, loss=loss, seed=params.seed))
    if tuning is None:
        return [lesson]
    second = PhraseBoxes(params.batch_size, phrases.boxes_each, tuning.drawn, tuning.hard_boxes)
    return [
        lesson,
        Lesson(
            name="fine_tuning",
            prepared=second.prepare(inputs, model=model, loss=loss, seed=params.seed + 1),
            loss=build("bifocal.losses", tuning.loss, sorter=load_sorter(sorter)),
            epochs=tuning.epochs,
            learning_rate=tuning.learning_rate,
            decay_after=[],
            # Modules unfrozen during the first phase train from the start; modules frozen for good stay frozen.
            train_from={part: epoch for part, epoch in params.train_from.items() if epoch is None},
        ),
    ]
