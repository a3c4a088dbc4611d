"""The contract of augmentations."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from bifocal.models.batch import Batch
from bifocal.registry import CheckedByConstruction
from bifocal.training.inputs import TrainingInputs

Augment = Callable[[Batch, Generator], Batch]
"""Returns a changed copy of a batch; all random numbers come from the generator, which belongs to the step."""


class Augmentation(CheckedByConstruction, ABC):
    """Random change of training batches: base class of ``bifocal.training.augmentations``."""

    @abstractmethod
    def prepare(self, inputs: TrainingInputs) -> Augment:
        """Return the function that changes a batch."""


def check_probability(probability: float) -> None:
    """Raise ``ValueError`` unless ``probability`` is in (0, 1)."""
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}: expected a number between 0 and 1")


def drop(present: Tensor, probability: float, generator: Generator) -> Tensor:
    """Return ``present`` (B, R) bool without random elements; one element of each row that has some is always kept."""
    draws = torch.rand(present.shape, generator=generator).masked_fill(~present, -1)
    last = draws == draws.amax(dim=1, keepdim=True)
    return present & ((draws >= probability) | last)
