"""What a model is trained on, for how many epochs, and what judges it."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from bifocal.batch import BatchSource, ImageCaptionPairs
from bifocal.datasets import Dataset
from bifocal.embedding import dual_encoder, is_dual_encoder
from bifocal.features import FeatureStore
from bifocal.losses import SemanticTripletLoss
from bifocal.registry import build, get
from bifocal.sorters import load_sorter
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training.batches.base import Sampler
from bifocal.training.batches.captions import append_captions, distinct_batches, epoch_batches
from bifocal.training.batches.mined_triplets import MiningSampler, SemanticPairs, relevant_images
from bifocal.training.batches.phrase_boxes import PhraseBoxes, PhraseSampler, PhraseValidator
from bifocal.training.validators.base import Validator
from bifocal.training.validators.recall import RecallValidator
from bifocal.training.validators.semantic import SemanticValidator
from components.train_embedding.spec import MiningParams, PhrasesParams, TrainEmbeddingParams
from runtime.spec import ClassRef


@dataclass(frozen=True)
class Material:
    """What lessons are made of: the artifacts of the stages before."""

    tables: Dataset
    features: FeatureStore
    text: TextStore
    reader: FittedVectorizer
    sorter: Path

    def pairs(self, split: str) -> ImageCaptionPairs:
        """Captions and images of a split."""
        return ImageCaptionPairs(self.tables.split(split), self.features, self.text)

    def phrases(self, split: str) -> PhraseBoxes:
        """Phrases and boxes of a split."""
        return PhraseBoxes(self.tables.split(split), self.features, self.reader)

    def loss(self, part: ClassRef) -> nn.Module:
        """The loss of that name, with the sorter if it takes one."""
        takes_sorter = "sorter" in inspect.signature(get("bifocal.losses", part.name)).parameters
        given = {"sorter": load_sorter(self.sorter)} if takes_sorter else {}
        loss: nn.Module = build("bifocal.losses", part.name, **part.arguments, **given)
        return loss


@dataclass(frozen=True)
class Lesson:
    """One training; see ``bifocal.training.fit``. Its name is that of the folder of its checkpoints."""

    name: str
    pairs: BatchSource
    sampler: Sampler
    validator: Validator
    loss: nn.Module
    epochs: int
    learning_rate: float
    decay_after: Sequence[float]
    train_from: Mapping[str, int | None]


def lessons(params: TrainEmbeddingParams, model: nn.Module, material: Material) -> list[Lesson]:
    """Captions of images, or mined triplets of images; or phrases of boxes, and then boxes that fool the model.

    Raises:
        ValueError: the model or the loss cannot be trained so.
    """
    if params.phrases is not None:
        return _phrases(params, params.phrases, model, material)
    if params.mining is not None:
        return [_mined(params, params.mining, model, material)]
    train = material.pairs("train")
    loss, validator = material.loss(params.loss), RecallValidator(material.pairs("val"))
    return [_first(params, loss, train, _drawn(params, train), validator)]


def _first(
    params: TrainEmbeddingParams, loss: nn.Module, pairs: BatchSource, sampler: Sampler, validator: Validator
) -> Lesson:
    return Lesson(
        name="first",
        pairs=pairs,
        sampler=sampler,
        validator=validator,
        loss=loss,
        epochs=params.epochs,
        learning_rate=params.learning_rate,
        decay_after=params.decay_after,
        train_from=params.train_from,
    )


def _drawn(params: TrainEmbeddingParams, train: ImageCaptionPairs) -> Sampler:
    rows, size, seed = train.image_of_caption, params.batch_size, params.seed

    def sample(epoch: int) -> Sequence[Tensor]:
        if params.distinct_images:
            drawn = distinct_batches(rows, size, seed, epoch)
        else:
            drawn = epoch_batches(rows, size, params.captions_per_image, seed, epoch)
        return append_captions(rows, drawn, params.added_captions, seed, epoch) if params.added_captions else drawn

    return sample


def _mined(params: TrainEmbeddingParams, mining: MiningParams, model: nn.Module, material: Material) -> Lesson:
    loss = material.loss(params.loss)
    if not is_dual_encoder(model) or not isinstance(loss, SemanticTripletLoss):
        raise ValueError(
            "mined triplets are for a TwoBranchModel with a SemanticTripletLoss, not for a "
            f"{type(model).__name__} with a {type(loss).__name__}: set mining to null"
        )
    pairs, arguments = SemanticPairs(material.pairs("train")), mining.model_dump()
    relevant = relevant_images(pairs, arguments.pop("neighbours"))
    sampler = MiningSampler(
        dual_encoder(model), pairs, relevant, params.batch_size, params.seed, margin=loss.margin, **arguments
    )
    return _first(params, loss, pairs, sampler, SemanticValidator(SemanticPairs(material.pairs("val"))))


def _phrases(
    params: TrainEmbeddingParams, phrases: PhrasesParams, model: nn.Module, material: Material
) -> list[Lesson]:
    if not is_dual_encoder(model):
        raise ValueError(
            f"phrases of boxes are for a TwoBranchModel, not for a {type(model).__name__}: set phrases to null"
        )
    pairs, validator = material.phrases("train"), PhraseValidator(material.phrases("val"))
    sampler = PhraseSampler(pairs, params.seed, params.batch_size, phrases.boxes_each)
    first, tuning = _first(params, material.loss(params.loss), pairs, sampler, validator), phrases.fine_tuning
    if tuning is None:
        return [first]
    return [
        first,
        Lesson(
            name="fine_tuning",
            pairs=pairs,
            sampler=replace(
                sampler, seed=params.seed + 1, model=dual_encoder(model), at_most=tuning.hard_boxes, drawn=tuning.drawn
            ),
            validator=validator,
            loss=material.loss(tuning.loss),
            epochs=tuning.epochs,
            learning_rate=tuning.learning_rate,
            decay_after=[],
            # What waits for a later epoch of the first training has had it; what never trains does not now.
            train_from={part: epoch for part, epoch in params.train_from.items() if epoch is None},
        ),
    ]
