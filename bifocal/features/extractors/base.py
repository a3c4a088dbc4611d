"""Base class of the extractors on timm backbones."""

from collections.abc import Sequence
from typing import Any

from PIL import Image

from bifocal.backbones.timm.backbone import BackboneConfig, TimmBackbone
from bifocal.onnx.pixels import DECODED_SCALE, ResizeOrCrop


class TimmExtractor:
    """A frozen timm backbone with its preprocessing.

    Args:
        backbone: name of a timm model, with or without the tag of its weights
            (``"resnet152.a1_in1k"``).
        size: side of the resized image in pixels; the longer side with ``resize="aspect"``; None
            for the size that timm states for the weights.
        resize: "square" changes the aspect ratio, "aspect" keeps it, "crop" takes the central
            square; None for "square" if ``size`` is given, and otherwise for what timm states for
            the weights: "crop", or "square".
        mean: mean of each channel, of pixels in [0, 1]; None for the values that timm states for
            the weights.
        std: standard deviation of each channel, as ``mean``.
        model_arguments: further keyword arguments of ``timm.create_model``.
        with_classifier: keep the classifier of the model.
    """

    keeps_weights = False
    tapped: Sequence[str] = ()
    """Names of the modules of the network whose outputs are features."""

    def __init__(
        self,
        backbone: str,
        size: int | None,
        resize: ResizeOrCrop | None = None,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        model_arguments: dict[str, Any] | None = None,
        with_classifier: bool = False,
    ) -> None:
        config = BackboneConfig(backbone, size, resize, mean, std, model_arguments)
        self.backbone = TimmBackbone(config, with_classifier)

    @property
    def decoded_side(self) -> int | None:
        backbone = self.backbone
        if backbone.resize == "crop":
            return DECODED_SCALE * backbone.scaled
        # The size of a result that keeps the aspect ratio would depend on the rounding of the
        # decoded size.
        return DECODED_SCALE * backbone.size if backbone.resize == "square" else None

    def describe(self) -> dict[str, Any]:
        return self.backbone.describe()

    def preprocess(self, image: Image.Image) -> Any:
        """Return the pixels (3, H, W) uint8 of the resized image, which ``extract`` crops if
        necessary."""
        return self.backbone.preprocess(image)
