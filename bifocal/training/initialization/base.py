"""Base class of the initializations."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from bifocal.models.base import Model
from bifocal.registry import CheckedByConstruction
from bifocal.serialization import read_tensors, write_tensors
from bifocal.training.distributed import World
from bifocal.training.inputs import TrainingInputs


class Initialization(CheckedByConstruction, ABC):
    """Base of the parts of ``bifocal.training.initialization``: a model's weights before, or
    without, its training."""

    encoders: ClassVar[Collection[str]] = ()
    """Names that the classes of both encoders may have; empty for any."""

    optional: ClassVar[bool] = False
    """Whether a member in closed form is left out unless it raises the recall sum of the split
    "val"."""

    @abstractmethod
    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        """Set the weights of ``model`` in place, and return the metrics of the initialization.

        The model has random weights, and the pretrained weights of a backbone that it trains. Only
        the split "train" may be learned from.
        """


def initialize(
    model: Model,
    initialization: Initialization,
    inputs: TrainingInputs,
    *,
    checkpoints: Path,
    seed: int,
) -> dict[str, float]:
    """Set the weights of ``model`` on every process, from ``checkpoints`` in a run that resumes;
    return the metrics."""
    file = checkpoints / "initialization.safetensors"
    world = World.current()
    if world.is_main and not file.is_file():
        metrics = initialization.apply(model, inputs, seed=seed)
        write_tensors(file, model.state_dict(), metrics)
    tensors, notes = world.broadcast_tensors(lambda: read_tensors(file))
    model.load_state_dict(tensors)
    return {name: float(value) for name, value in notes.items()}
