"""Weights from a safetensors file."""

from pathlib import Path

from bifocal.backbones.base import Backbone
from bifocal.backbones.state import extra_tensors, load_weights_file, read_safetensors
from bifocal.training.weights.loaded import Loaded, LoadedWeights


class FromFile(LoadedWeights):
    """The weights in a safetensors file, such as the ``weights.safetensors`` of another feature directory.

    The weights must have the network's names; weights of a classifier are ignored. A pickle is refused.

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
        >>> trained.backbone.network.conv1[0].weight.equal(extractor.backbone.network.conv1[0].weight)
        True
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def load(self, backbone: Backbone) -> Loaded:
        return Loaded(load_weights_file(backbone, self.path), extra_tensors(read_safetensors(self.path)))
