"""The contract of validators."""

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from torch import nn

from bifocal.registry import CheckedByConstruction
from bifocal.training.inputs import TrainingInputs


class Validator(Protocol):
    """Metrics of a model on the validation split; the best epoch has the highest value of ``monitor``."""

    @property
    def monitor(self) -> str:
        """Name of the metric that chooses the epoch; higher is better."""
        ...

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return the metrics, in percent; leave the model in evaluation mode."""
        ...


class Validation(CheckedByConstruction, ABC):
    """Choice of the validation metric, ``monitor``: base class of ``bifocal.training.validators``."""

    monitor: ClassVar[str]

    @abstractmethod
    def prepare(self, inputs: TrainingInputs) -> Validator:
        """Return the validator of the split "val"."""
