"""Batches of phrases with their boxes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from bifocal.models.batch import DualEncoder, dual_encoder
from bifocal.registry import check_range
from bifocal.serialization import read_tensors, write_tensors
from bifocal.training.batches.base import Batches, PreparedBatches, epoch_generator
from bifocal.training.inputs import TrainingInputs
from bifocal.training.phrase_pairs import PhraseBoxPairs, draw_per_group, hard_negative_boxes
from bifocal.training.validators import Phrases, Validation

HARD_BOXES = "hard_boxes.safetensors"
"""File of a phase's checkpoints with the recorded hard boxes."""


@dataclass(frozen=True)
class PhraseBoxes(Batches):
    """Pairs of a phrase and one of its ground-truth boxes, each pair once per epoch.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016,
    section 3.3, a training in two phases. Phase 1, ``negatives_per_phrase: 0``: each phrase of a
    batch gets one more of its boxes, and each box one more of its phrases, so that the structure
    terms of ``StructurePreservingLoss`` have neighbors. Phase 2, ``negatives_per_phrase`` above 0
    and structure weights of 0: each phrase gets proposals that the model of phase 1 scores above
    one of its ground-truth boxes; they are recorded once, when the phase begins. The features have
    one vector per box, and ground-truth boxes (``truth_regions`` of ``Proposals``); the validator
    ``Phrases`` chooses the epoch.

    Args:
        batch_size: pairs per batch.
        boxes_per_phrase: boxes of a phrase that are trained on, at most; both phases have the same
            boxes.
        negatives_per_phrase: hard-negative boxes sampled per phrase and batch (the paper does not
            say how many).
        max_negatives: hard-negative boxes recorded per phrase; needs ``negatives_per_phrase``.
    """

    validator: ClassVar[type[Validation]] = Phrases
    single_vector: ClassVar[bool] = True
    batch_size: int = 1500
    boxes_per_phrase: int = 10
    negatives_per_phrase: int = 0
    max_negatives: int = 50

    def __post_init__(self) -> None:
        check_range(
            "[1, inf)",
            batch_size=self.batch_size,
            boxes_per_phrase=self.boxes_per_phrase,
            max_negatives=self.max_negatives,
        )
        if not 0 <= self.negatives_per_phrase <= self.max_negatives:
            raise ValueError(
                f"negatives_per_phrase is {self.negatives_per_phrase}: expected 0 to "
                f"{self.max_negatives}, the value of max_negatives"
            )

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        """Explain arguments that the constructor rejects, and arguments without effect."""
        yield from super().conflicts(arguments)
        if "max_negatives" in arguments and not arguments.get("negatives_per_phrase"):
            yield (
                f"max_negatives is {arguments['max_negatives']}, but no negatives are mined: "
                "set negatives_per_phrase, or leave max_negatives out"
            )

    def prepare(
        self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int
    ) -> PreparedBatches:
        pairs, encoder = inputs.phrases("train"), dual_encoder(model)
        sampler = PhraseBoxSampler(self, pairs, encoder, seed)
        return PreparedBatches(pairs, sampler, sampler.begin)


class PhraseBoxSampler:
    """Sampler of ``PhraseBoxes``: the rows of a batch are (n, 2), a phrase and a box; a hard
    negative has phrase -1."""

    def __init__(
        self, batches: PhraseBoxes, pairs: PhraseBoxPairs, model: DualEncoder, seed: int
    ) -> None:
        self.batches, self.pairs, self.model, self.seed = batches, pairs, model, seed
        self.positives = pairs.resampled(batches.boxes_per_phrase)
        self._hard: tuple[Tensor, ...] = ()

    def begin(self, directory: Path) -> None:
        """Record the hard boxes of the current model in ``directory``; a training that resumes
        keeps its boxes."""
        if not self.batches.negatives_per_phrase:
            return
        file = directory / HARD_BOXES
        if not file.is_file():
            generator = epoch_generator(self.seed, 0)
            hard = hard_negative_boxes(
                self.model,
                self.pairs,
                self.positives,
                generator,
                max_negatives=self.batches.max_negatives,
            )
            write_tensors(file, {"hard_boxes": hard}, {})
        hard = read_tensors(file)[0]["hard_boxes"]
        counts = hard[:, 0].bincount(minlength=len(self.pairs.phrases))
        self._hard = hard[:, 1].split(counts.tolist())

    def __call__(self, epoch: int) -> list[Tensor]:
        """Return the rows of each batch of an epoch."""
        # The generator of epoch 0 drew the hard boxes.
        generator = epoch_generator(self.seed, epoch + 1)
        order = torch.randperm(len(self.positives), generator=generator)
        batches = [self.positives[rows] for rows in order.split(self.batches.batch_size)]
        if not self.batches.negatives_per_phrase:
            return [append_neighbors(rows, self.positives, generator) for rows in batches]
        return [
            append_negatives(rows, self._hard, self.batches.negatives_per_phrase, generator)
            for rows in batches
        ]


def append_neighbors(rows: Tensor, positives: Tensor, generator: Generator) -> Tensor:
    """Return a batch's pairs (n, 2), then one more pair from ``positives`` (P, 2) per phrase and
    per box."""
    others = positives[torch.randperm(len(positives), generator=generator)]
    others = others[~torch.isin(_codes(others), _codes(rows))]
    more = (_first_of_each(others[torch.isin(others[:, key], rows[:, key])], key) for key in (0, 1))
    return torch.cat([rows, *more])


def append_negatives(
    rows: Tensor, hard: Sequence[Tensor], negatives_per_phrase: int, generator: Generator
) -> Tensor:
    """Return the pairs (n, 2) of a batch, then at most so many ``hard`` boxes per phrase, with
    phrase index -1."""
    drawn = []
    for phrase in rows[:, 0].unique().tolist():
        order = torch.randperm(len(hard[phrase]), generator=generator)
        drawn.append(hard[phrase][order[:negatives_per_phrase]])
    boxes = torch.cat(drawn)
    return torch.cat([rows, torch.stack([torch.full_like(boxes, -1), boxes], dim=1)])


def _codes(rows: Tensor) -> Tensor:
    return (rows[:, 0] << 32) + rows[:, 1]


def _first_of_each(rows: Tensor, key: int) -> Tensor:
    return rows[draw_per_group(rows[:, key], torch.arange(len(rows)), 1)]
