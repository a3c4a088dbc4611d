"""Size and crop of the images that a timm model takes, from its data configuration."""

from collections.abc import Mapping
from math import floor
from typing import Any

from torch import nn

from bifocal.onnx.resizing import ResizeOrCrop


def input_size(configuration: Mapping[str, Any], model_arguments: Mapping[str, Any]) -> int:
    """Return the side of the square that the model takes, in pixels; ``img_size`` replaces timm's size."""
    size = model_arguments.get("img_size", configuration["input_size"][1:])
    height, width = (size, size) if isinstance(size, int) else size
    if height != width:
        raise ValueError(
            f"{configuration['architecture']} takes images of {height} x {width} pixels, not square: set size"
        )
    return int(height)


def input_resize(configuration: Mapping[str, Any]) -> ResizeOrCrop:
    """Return how timm brings images to the size of the model: "crop", or "square" for its mode "squash"."""
    mode, share = configuration["crop_mode"], configuration["crop_pct"]
    if mode == "center":
        return "crop"
    if mode == "squash" and share == 1:
        return "square"
    raise ValueError(
        f"timm crops images of {configuration['architecture']} by {mode!r} with crop_pct {share}: set resize to "
        "square, aspect or crop"
    )


def scaled_side(configuration: Mapping[str, Any], size: int) -> int:
    """Return the pixels of the shorter side before the central square of ``size`` pixels is cropped, as timm's."""
    share: float = configuration["crop_pct"]
    return floor(size / share)


def check_input_size(network: nn.Module, name: str, size: int) -> None:
    """Raise ``ValueError`` if a transformer with fixed positions takes images of another size."""
    embedding = getattr(network, "patch_embed", None)
    expected = getattr(embedding, "img_size", None)
    if getattr(embedding, "strict_img_size", False) and expected is not None and tuple(expected) != (size, size):
        raise ValueError(
            f"{name} takes images of {expected[0]} x {expected[1]} pixels, not {size}: "
            f"set model_arguments to {{img_size: {size}}}, or leave size out"
        )
