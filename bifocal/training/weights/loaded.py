"""Weights that exist before the run: of a file, or of the backbone's library."""

from abc import abstractmethod
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from bifocal.backbones.base import Backbone
from bifocal.backbones.state import (
    extra_tensors,
    load_library_weights,
    load_weights_file,
    read_safetensors,
)
from bifocal.datasets import Dataset
from bifocal.features.base import FeatureExtractor
from bifocal.training.weights.base import PreparedWeights, Weights, keep


class Loaded(NamedTuple):
    """The result of loading weights."""

    digest: str  # SHA-256 of the weights
    extra: dict[str, Tensor]  # tensors of other modules in the same file, by name


class LoadedWeights(Weights):
    """Weights that are read, not trained."""

    shardable = True

    @abstractmethod
    def load(self, backbone: Backbone) -> Loaded:
        """Load the weights into ``backbone``."""

    def prepare(
        self,
        extractor: FeatureExtractor,
        dataset: Dataset,
        directory: Path,
        seed: int,
    ) -> PreparedWeights:
        digest, extra = self.load(extractor.backbone)
        if extractor.keeps_weights:
            keep(extractor, directory, extra, {})
        return PreparedWeights(digest, {})


class FromFile(LoadedWeights):
    """The weights in a safetensors file, such as the ``weights.safetensors`` of another feature
    directory.

    The weights must have the network's names; weights of a classifier are ignored. A pickle is
    refused.

    Args:
        path: the file.

    Example:
        >>> from tempfile import mkdtemp
        >>> from safetensors.torch import save_file
        >>> from bifocal.features.extractors import Grid
        >>> trained, extractor = Grid("resnet10t"), Grid("resnet10t")
        >>> path = Path(mkdtemp()) / "weights.safetensors"
        >>> save_file(trained.backbone.network.state_dict(), path)
        >>> digest, extra = FromFile(path).load(extractor.backbone)
        >>> trained.backbone.network.conv1[0].weight.equal(
        ...     extractor.backbone.network.conv1[0].weight
        ... )
        True
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def load(self, backbone: Backbone) -> Loaded:
        return Loaded(
            load_weights_file(backbone, self.path), extra_tensors(read_safetensors(self.path))
        )


class Pretrained(LoadedWeights):
    """The pretrained weights of the library (timm, torchvision), which downloads them."""

    def load(self, backbone: Backbone) -> Loaded:
        return Loaded(load_library_weights(backbone), {})
