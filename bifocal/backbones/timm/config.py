"""Arguments that the extractors on timm backbones share."""

from dataclasses import dataclass
from typing import Any

from bifocal.onnx.resizing import ResizeOrCrop


@dataclass(frozen=True)
class BackboneConfig:
    """A timm model and the preprocessing of its images; None stands for the value that timm states for the weights."""

    backbone: str  # with or without the tag of the weights ("resnet152.a1_in1k")
    size: int | None = None  # side in pixels; the longer side with the resize "aspect"
    resize: ResizeOrCrop | None = None  # None: "square" if ``size`` is given
    mean: tuple[float, float, float] | None = None  # of each channel, of pixels in [0, 1]
    std: tuple[float, float, float] | None = None
    model_arguments: dict[str, Any] | None = None  # of ``timm.create_model``
