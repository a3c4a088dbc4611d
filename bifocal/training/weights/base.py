"""Base classes of the sources of weights: read, or trained on the dataset."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from bifocal.backbones.state import WEIGHTS_FILE, load_weights_file
from bifocal.datasets import Dataset
from bifocal.features.base import FeatureExtractor
from bifocal.registry import CheckedByConstruction
from bifocal.serialization import read_tensors, write_tensors


class PreparedWeights(NamedTuple):
    """Weights of an extractor that is ready."""

    digest: str  # SHA-256 of the weights file
    metrics: dict[str, float]  # of a training, in [0, 1]


class Weights(CheckedByConstruction, ABC):
    """A source of an extractor's weights; ``shardable`` if every shard can prepare the same weights
    itself."""

    shardable: ClassVar[bool]

    @classmethod
    def mismatch(cls, extractor: type, arguments: Mapping[str, Any]) -> str | None:
        """Return why the weights do not suit an extractor with these arguments (all, with
        defaults), or None."""
        return None

    @abstractmethod
    def prepare(
        self,
        extractor: FeatureExtractor,
        dataset: Dataset,
        directory: Path,
        seed: int,
    ) -> PreparedWeights:
        """Load weights into ``extractor``, after training them on the splits "train" and "val" if
        necessary.

        ``directory`` keeps trained weights as ``weights.safetensors``.
        """


def restore(extractor: FeatureExtractor, path: Path) -> PreparedWeights:
    """Load the weights file that a training wrote, with the metrics in its metadata."""
    digest = load_weights_file(extractor.backbone, path)
    return PreparedWeights(digest, read_tensors(path)[1])


def keep(
    extractor: FeatureExtractor,
    directory: Path,
    extra: Mapping[str, Tensor],
    metrics: Mapping[str, float],
) -> None:
    """Write the weights of ``extractor`` and the tensors ``extra`` of other modules to
    ``directory``."""
    state = extractor.backbone.network.state_dict()
    write_tensors(directory / WEIGHTS_FILE, state | dict(extra), dict(metrics))


class TrainedWeights(Weights):
    """Weights that are trained once for each feature directory."""

    shardable = False

    @abstractmethod
    def train(
        self, extractor: FeatureExtractor, dataset: Dataset, checkpoints: Path, seed: int
    ) -> tuple[Mapping[str, Tensor], Mapping[str, float]]:
        """Train the backbone of ``extractor`` in place; return tensors of other modules by name,
        and metrics."""

    def prepare(
        self,
        extractor: FeatureExtractor,
        dataset: Dataset,
        directory: Path,
        seed: int,
    ) -> PreparedWeights:
        if not (directory / WEIGHTS_FILE).is_file():
            extra, metrics = self.train(extractor, dataset, directory / "checkpoints", seed)
            keep(extractor, directory, extra, metrics)
        return restore(extractor, directory / WEIGHTS_FILE)
