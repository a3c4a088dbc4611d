"""The contract of validators."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

from torch import nn

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


class Validation(ABC):
    """Choice of the validation metric: base of the parts of ``bifocal.training.validators``.

    Attributes:
        monitor: name of the metric that chooses the epoch.
    """

    monitor: ClassVar[str]

    @abstractmethod
    def prepare(self, inputs: TrainingInputs) -> Validator:
        """Return the validator of the split "val".

        Raises:
            ValueError: the split lacks what the metric needs.
        """

    def kept_images(self, images: int) -> int:
        """Return how many of the split's ``images`` images have embeddings in memory at once."""
        return images

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        """Explain arguments that the constructor rejects."""
        try:
            cls(**arguments)
        except ValueError as error:
            yield str(error)
