"""Batches of phrases with their boxes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from bifocal.datasets.published import PublishedCorpus
from bifocal.embedding import DualEncoder, dual_encoder
from bifocal.training.batches.base import (
    Batches,
    PreparedBatches,
    Sampler,
    check_positive,
    epoch_generator,
)
from bifocal.training.batches.expected import ExpectedBatches
from bifocal.training.batches.shuffling import shuffle_within_images
from bifocal.training.inputs import TrainingInputs
from bifocal.training.pairs.phrase_boxes import PhraseBoxPairs
from bifocal.training.validators.base import Validation
from bifocal.training.validators.phrases import Phrases


@dataclass(frozen=True)
class PhraseBoxes(Batches):
    """Pairs of a phrase and one of its boxes, each pair at most once per epoch.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, section 3.3, a training
    in two phases. Phase 1, ``negatives_per_phrase: 0``: each phrase of a batch gets one more of its boxes, and each box
    one more of its phrases, so that the structure terms of ``StructurePreservingLoss`` have neighbors. Phase 2,
    ``negatives_per_phrase`` above 0 and structure weights of 0: each phrase gets boxes that the current model scores
    above one of its positives, mined at the beginning of each epoch. The features have one vector per box
    (``Proposals``); the validator ``Phrases`` chooses the epoch.

    Args:
        batch_size: pairs per batch.
        boxes_per_phrase: boxes of a phrase drawn per epoch, at most.
        negatives_per_phrase: hard-negative boxes sampled per phrase and batch (the paper does not say how many).
        max_negatives: hard-negative boxes kept per phrase and epoch; needs ``negatives_per_phrase``.

    Raises:
        ValueError: a value is below its minimum, or ``negatives_per_phrase`` above ``max_negatives``.
    """

    validator: ClassVar[type[Validation]] = Phrases
    batch_size: int = 1500
    boxes_per_phrase: int = 10
    negatives_per_phrase: int = 0
    max_negatives: int = 50

    def __post_init__(self) -> None:
        check_positive(
            batch_size=self.batch_size, boxes_per_phrase=self.boxes_per_phrase, max_negatives=self.max_negatives
        )
        if not 0 <= self.negatives_per_phrase <= self.max_negatives:
            raise ValueError(
                f"negatives_per_phrase is {self.negatives_per_phrase}: expected 0 to {self.max_negatives}, the value "
                "of max_negatives"
            )

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        """Explain arguments that the constructor rejects, and arguments without effect."""
        yield from super().conflicts(arguments)
        if "max_negatives" in arguments and not arguments.get("negatives_per_phrase"):
            yield (
                f"max_negatives is {arguments['max_negatives']}, but no negatives are mined: set negatives_per_phrase, "
                "or leave max_negatives out"
            )

    def prepare(self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int) -> PreparedBatches:
        """See ``Batches.prepare``.

        Raises:
            TypeError: the model has no single vector per image.
        """
        pairs, encoder = inputs.phrases("train"), dual_encoder(model)
        return PreparedBatches(pairs, self.sampler(pairs, encoder, seed))

    def expect(self, corpus: PublishedCorpus) -> ExpectedBatches:
        """Return the sizes of the batches: each phrase adds a box or its negatives, each box adds a phrase."""
        more = self.negatives_per_phrase or 1
        embedded = corpus.images["train"] if self.negatives_per_phrase else 0
        steps = -(-corpus.phrase_pairs // self.batch_size)
        boxes, phrases = (1 + more) * self.batch_size, self.batch_size * (1 if self.negatives_per_phrase else 2)
        return ExpectedBatches(boxes, phrases, steps, embedded, regions=1)

    def sampler(self, pairs: PhraseBoxPairs, model: DualEncoder, seed: int) -> Sampler:
        """Return the sampler of a collection of phrases and boxes.

        The rows of a batch are (n, 2), a phrase and a box; a hard negative has phrase -1.

        Args:
            pairs: phrases and boxes.
            model: scores the boxes when an epoch begins, for hard negatives.
            seed: of all random draws.
        """

        def sample(epoch: int) -> list[Tensor]:
            generator = epoch_generator(seed, epoch)
            hard = pairs.hard_negatives(model, generator, self.max_negatives) if self.negatives_per_phrase else None
            order, index = shuffle_within_images(pairs.positives[:, 0], generator)
            drawn = order[index < self.boxes_per_phrase]
            drawn = drawn[torch.randperm(len(drawn), generator=generator)]
            batches = [pairs.positives[rows] for rows in drawn.split(self.batch_size)]
            if hard is None:
                return [append_neighbors(rows, pairs.positives, generator) for rows in batches]
            return [append_negatives(rows, hard, self.negatives_per_phrase, generator) for rows in batches]

        return sample


def append_neighbors(rows: Tensor, positives: Tensor, generator: Generator) -> Tensor:
    """Return the pairs of a batch with one more pair of each phrase and one more pair of each box.

    Shape:
        rows (n, 2), positives (P, 2), pairs of rows of a phrase and a box -> (n + k, 2), the given pairs first.
    """
    others = positives[torch.randperm(len(positives), generator=generator)]
    others = others[~torch.isin(_codes(others), _codes(rows))]
    more = (_first_of_each(others[torch.isin(others[:, key], rows[:, key])], key) for key in (0, 1))
    return torch.cat([rows, *more])


def append_negatives(rows: Tensor, hard: list[Tensor], negatives_per_phrase: int, generator: Generator) -> Tensor:
    """Return the pairs of a batch with hard-negative boxes of each of its phrases, as pairs of phrase -1.

    Args:
        rows: (n, 2), pairs of rows of a phrase and a box.
        hard: rows of the hard-negative boxes of each phrase.
        negatives_per_phrase: boxes drawn per phrase, at most.
        generator: draws them.
    """
    boxes = torch.cat(
        [
            hard[phrase][torch.randperm(len(hard[phrase]), generator=generator)[:negatives_per_phrase]]
            for phrase in rows[:, 0].unique()
        ]
    )
    return torch.cat([rows, torch.stack([torch.full_like(boxes, -1), boxes], dim=1)])


def _codes(rows: Tensor) -> Tensor:
    """Return one number per pair."""
    return (rows[:, 0] << 32) + rows[:, 1]


def _first_of_each(rows: Tensor, key: int) -> Tensor:
    """Return the first of the rows with the same value in column ``key``."""
    first: dict[int, int] = {}
    for index, value in enumerate(rows[:, key].tolist()):
        first.setdefault(value, index)
    return rows[list(first.values())]
