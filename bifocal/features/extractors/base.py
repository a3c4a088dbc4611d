"""Base class of the extractors on timm backbones."""

from typing import Any

from PIL import Image

from bifocal.backbones.config import BackboneConfig
from bifocal.backbones.preprocessing import Resize
from bifocal.backbones.timm import TimmBackbone


class TimmExtractor:
    """A frozen timm backbone with its preprocessing.

    Args:
        backbone: name of a timm model, with or without the tag of its weights (``"resnet152.a1_in1k"``).
        size: side of the resized image in pixels; the longer side with ``resize="aspect"``.
        resize: "square" changes the aspect ratio, "aspect" keeps it.
        mean: mean of each channel, of pixels in [0, 1]; None for the values that timm states for the weights.
        std: standard deviation of each channel, as ``mean``.
        model_arguments: further keyword arguments of ``timm.create_model``.
        with_classifier: keep the classifier of the model.

    Raises:
        ValueError: timm has no such model.
    """

    keeps_weights = False

    def __init__(
        self,
        backbone: str,
        size: int,
        resize: Resize = "square",
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
        with_classifier: bool = False,
    ) -> None:
        config = BackboneConfig(backbone, size, resize, mean, std, model_arguments)
        self.backbone = TimmBackbone(config, with_classifier)

    def describe(self) -> dict[str, Any]:
        """Return the backbone, its preprocessing and the arguments of the extractor."""
        return self.backbone.describe()

    def preprocess(self, image: Image.Image) -> Any:
        """Return the pixels (3, H, W) uint8 of the resized image."""
        return self.backbone.preprocess(image)
