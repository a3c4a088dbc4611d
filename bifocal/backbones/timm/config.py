"""Arguments that the extractors on timm backbones share."""

from dataclasses import dataclass
from typing import Any

from bifocal.datasets.resizing import ResizeOrCrop


@dataclass(frozen=True)
class BackboneConfig:
    """A timm model and the preprocessing of its images.

    Extractors take these values as arguments of their own: ``Grid(backbone="resnet10t", size=128)``.

    Args:
        backbone: name of a timm model, with or without the tag of its weights (``"resnet152.a1_in1k"``).
        size: side of the resized image in pixels; the longer side with ``resize="aspect"``; None for the size that
            timm states for the weights.
        resize: "square" changes the aspect ratio, "aspect" keeps it, "crop" takes the central square; None for "square"
            if ``size`` is given, and otherwise for what timm states for the weights: "crop", or "square".
        mean: mean of each channel, of pixels in [0, 1]; None for the values that timm states for the weights.
        std: standard deviation of each channel, as ``mean``.
        model_arguments: further keyword arguments of ``timm.create_model``.
    """

    backbone: str
    size: int | None = None
    resize: ResizeOrCrop | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    model_arguments: dict[str, Any] | None = None
