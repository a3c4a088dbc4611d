"""Base class of the batch samplers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from bifocal.models.batch import BatchSource
from bifocal.registry import CheckedByConstruction
from bifocal.training.inputs import TrainingInputs
from bifocal.training.validators import Recall, Validation

Sampler = Callable[[int], Sequence[Tensor]]
"""``sampler(epoch)`` returns the rows of each batch of an epoch, counted from 0, in order.

It is called once, when the epoch begins, so it may mine with the current model. A resumed epoch
keeps its batches.
"""


@dataclass(frozen=True)
class PreparedBatches:
    """Batches that are ready to train on: ``source`` reads the rows that ``sampler`` draws for each
    epoch.

    ``begin`` is called with the checkpoint directory of the phase when its training begins, and
    again when it resumes; the model has the weights that the phase starts from.
    """

    source: BatchSource
    sampler: Sampler
    begin: Callable[[Path], None] = lambda directory: None


class Batches(CheckedByConstruction, ABC):
    """Choice of examples that share a batch: base class of ``bifocal.training.batches``.

    ``batch_size`` counts examples; the class says what an example is.
    """

    validator: ClassVar[type[Validation]] = Recall
    """Validator that chooses the epoch if the phase names none."""
    loss: ClassVar[type[nn.Module] | None] = None
    """The only loss that these batches can be trained with, and that no other batches can; None for
    any other loss."""
    single_vector: ClassVar[bool] = False
    """Whether the model must have one vector per image."""
    batch_size: int

    @abstractmethod
    def prepare(
        self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int
    ) -> PreparedBatches:
        """Return the batches of the split "train"; samplers may mine with the model and with the
        margin of the loss."""


def epoch_generator(seed: int, epoch: int) -> Generator:
    """Return the random number generator of one epoch."""
    return Generator().manual_seed(seed * 10_007 + epoch)


def shuffle_within_images(image_of_caption: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return the rows of the captions sorted by image, in random order within an image, and their
    index there."""
    order = torch.randperm(len(image_of_caption), generator=generator)
    order = order[image_of_caption[order].argsort(stable=True)]
    counts = image_of_caption.bincount()
    index = torch.arange(len(order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return order, index
