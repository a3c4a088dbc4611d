"""The contract of validators."""

from typing import Protocol

from torch import nn


class Validator(Protocol):
    """Metrics of a model on the validation split; the best epoch has the highest value of ``monitor``."""

    @property
    def monitor(self) -> str:
        """Name of the metric that chooses the epoch; higher is better."""
        ...

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return the metrics, in percent; leave the model in evaluation mode."""
        ...
