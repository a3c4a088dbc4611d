"""Base class of weights that are trained on the dataset."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from bifocal.backbones.state import WEIGHTS_FILE
from bifocal.datasets import Dataset
from bifocal.features.base import FeatureExtractor
from bifocal.training.weights.base import PreparedWeights, Weights, keep, refuse_shards, restore


class TrainedWeights(Weights):
    """Weights that are trained once for each feature directory."""

    shardable = False
    network: ClassVar[str]  # trained network, for messages

    @abstractmethod
    def train(
        self, extractor: FeatureExtractor, dataset: Dataset, checkpoints: Path, seed: int
    ) -> tuple[Mapping[str, Tensor], Mapping[str, float]]:
        """Train the backbone of ``extractor`` in place; return tensors of other modules by name, and metrics."""

    def prepare(
        self,
        extractor: FeatureExtractor,
        dataset: Dataset,
        directory: Path,
        *,
        batch_size: int,
        seed: int,
        sharded: bool = False,
    ) -> PreparedWeights:
        refuse_shards(self.network, sharded)
        if not (directory / WEIGHTS_FILE).is_file():
            extra, metrics = self.train(extractor, dataset, directory / "checkpoints", seed)
            keep(extractor, directory, extra, metrics)
        return restore(extractor, directory / WEIGHTS_FILE)
