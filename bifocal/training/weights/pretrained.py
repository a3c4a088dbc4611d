"""Weights that the backbone's library provides."""

from bifocal.backbones.base import Backbone
from bifocal.backbones.state import load_library_weights
from bifocal.training.weights.loaded import Loaded, LoadedWeights


class Pretrained(LoadedWeights):
    """The pretrained weights of the library (timm, torchvision), which downloads them."""

    def load(self, backbone: Backbone) -> Loaded:
        return Loaded(load_library_weights(backbone), {})
