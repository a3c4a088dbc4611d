"""Weights from a safetensors file."""

from pathlib import Path

from bifocal.backbones.base import Backbone
from bifocal.backbones.state import extra_tensors, load_weights_file, read_safetensors
from bifocal.backbones.weights.loaded import Loaded, LoadedWeights


class FromFile(LoadedWeights):
    """The weights in a safetensors file, such as the ``weights.safetensors`` of another feature directory.

    The names of the weights must be those of the network; weights of a classifier are ignored. A pickle is refused.

    Args:
        path: the file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def load(self, backbone: Backbone) -> Loaded:
        return Loaded(load_weights_file(backbone, self.path), extra_tensors(read_safetensors(self.path)))
