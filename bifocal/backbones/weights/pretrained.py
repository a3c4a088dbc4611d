"""Weights that the backbone's library provides."""

from bifocal.backbones.base import Backbone
from bifocal.backbones.state import load_library_weights
from bifocal.backbones.weights.loaded import Loaded, LoadedWeights


class Pretrained(LoadedWeights):
    """The pretrained weights of the library (timm, torchvision), which downloads them."""

    @classmethod
    def can_shard(cls, extractor: type) -> bool:
        # Each shard would fit an extractor, such as the whitening of RMAC, to its own images.
        return not hasattr(extractor, "fit")

    def load(self, backbone: Backbone) -> Loaded:
        return Loaded(load_library_weights(backbone), {})
