"""Pixels of any size through a backbone that trains with whatever stands on it."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import interpolate

from bifocal.backbones.state import BESIDE, CARRIED, fit_weights
from bifocal.backbones.timm import TimmBackbone

Protocol = Literal["stretch", "scale_and_crop", "as_is"]
"""How an image is seen in evaluation. ``stretch``: resized to a square, irrespective of its aspect (BEAN, section
4.2). ``scale_and_crop``: the smaller side to 256, the central 224 x 224 of it (VSE++). ``as_is``: in its own size."""
CENTRAL_SIDE, SCALED_SIDE = 224, 256
SMALLEST_CROP, ASPECTS = 0.08, (3 / 4, 4 / 3)
IMAGES_AT_ONCE = 32
"""In evaluation: what bounds the memory for maps when a whole collection is embedded."""


class PixelBackbone(nn.Module):
    """A timm backbone with normalisation, and without its classifier; random weights until ``initialise``.

    Args:
        name: of a timm model whose ``forward_features`` gives a map.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Shape:
        pixels (B, 3, H, W), 0 to 255 -> (B, C, h, w); H and W are free if the model is fully convolutional.

    Raises:
        ValueError: timm has no such model, or its features are no map.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, model_arguments: dict[str, Any] | None = None) -> None:
        super().__init__()
        backbone = TimmBackbone(name, CENTRAL_SIDE, "square", None, None, model_arguments)
        self.network = backbone.network.requires_grad_(True).train()
        self.channels: int = backbone.network.num_features
        self.head = backbone.head
        for statistic in ("mean", "std"):
            values = torch.tensor(getattr(backbone, statistic)).view(3, 1, 1)
            self.register_buffer(statistic, 255 * values, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        inputs = ((pixels - self.mean) / self.std).contiguous(memory_format=torch.channels_last)
        features: Tensor = self.network.forward_features(inputs)
        return features

    def initialise(self, directory: Path) -> dict[str, Tensor]:
        """Take the weights that a ``features`` artifact of the kind Pixels or RMAC carries.

        Returns:
            What the file holds beside them, by its name.

        Raises:
            FileNotFoundError: the artifact carries no weights.
            ValueError: they are of another network.
        """
        path = directory / CARRIED
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is not there: an encoder that reads pixels starts from the weights in the features artifact; "
                "run extract_features with the kind Pixels"
            )
        found = load_file(path)
        fit_weights(self.network, found, path, self.head)
        return {name: tensor for name, tensor in found.items() if name.split(".")[0] in BESIDE}


def reads_pixels(encoder: nn.Module) -> bool:
    """Whether an image encoder stands on pixels, and has ``embed_pixels``."""
    return isinstance(getattr(encoder, "backbone", None), PixelBackbone)


def seen(pixels: Tensor, mask: Tensor, protocol: Protocol, side: int) -> list[Tensor]:
    """Each image (B, 3, H, W) cut to its ``mask`` (B, H, W), as ``protocol`` has it: (3, h, w) each.

    Args:
        side: pixels, of the square that "stretch" resizes to.
    """
    if protocol == "stretch":
        return [resized(image, side, side) for image in whole_images(pixels, mask)]
    if protocol == "scale_and_crop":
        return [_central(image) for image in whole_images(pixels, mask)]
    return whole_images(pixels, mask)


def whole_images(pixels: Tensor, mask: Tensor) -> list[Tensor]:
    """Each image without the padding below and to the right of it."""
    heights, widths = mask.any(dim=2).sum(dim=1).tolist(), mask.any(dim=1).sum(dim=1).tolist()
    return [image[:, :h, :w] for image, h, w in zip(pixels, heights, widths, strict=True)]


def random_crops(pixels: Tensor, mask: Tensor, side: int) -> Tensor:
    """A random rectangle of each image, resized: (B, 3, side, side).

    From 8 % of the area to all of it, of an aspect from 3/4 to 4/3, as in VSE++, whose crops BEAN takes (section 4.1).
    """
    from torchvision.transforms.v2 import RandomResizedCrop  # here, because it takes seconds to load

    draw = RandomResizedCrop(side, scale=(SMALLEST_CROP, 1.0), ratio=ASPECTS)
    crops = []
    for image in whole_images(pixels, mask):
        box = draw.make_params([image])
        top, left, height, width = (box[name] for name in ("top", "left", "height", "width"))
        crops.append(resized(image[:, top : top + height, left : left + width], side, side))
    return torch.stack(crops)


def resized(image: Tensor, height: int, width: int) -> Tensor:
    """An image (3, H, W) bilinearly at another size, without aliasing."""
    if image.shape[1:] == (height, width):
        return image
    size = (height, width)
    return interpolate(image.unsqueeze(0), size=size, mode="bilinear", antialias=True, align_corners=False)[0]


def scaled(image: Tensor) -> Tensor:
    """An image (3, H, W) whose smaller side has 256 pixels."""
    height, width = image.shape[1:]
    scale = SCALED_SIDE / min(height, width)
    return resized(image, round(height * scale), round(width * scale))


def by_size(images: list[Tensor], function: Callable[[Tensor], Tensor]) -> Tensor:
    """``function`` of the stacked images of each size, (b, 3, h, w) -> (b, d); rows in the images' order, (B, d)."""
    groups: dict[torch.Size, list[int]] = defaultdict(list)
    for position, image in enumerate(images):
        groups[image.shape].append(position)
    chunks = [
        positions[start : start + IMAGES_AT_ONCE]
        for positions in groups.values()
        for start in range(0, len(positions), IMAGES_AT_ONCE)
    ]
    found = torch.cat([function(torch.stack([images[p] for p in chunk])) for chunk in chunks])
    order = torch.tensor([p for chunk in chunks for p in chunk], device=found.device)
    return found[order.argsort()]


def _central(image: Tensor) -> Tensor:
    """The central square of (3, H, W) whose side is 224/256 of the smaller one: (3, 224, 224)."""
    height, width = image.shape[1:]
    side = max(1, round(min(height, width) * CENTRAL_SIDE / SCALED_SIDE))
    top, left = (height - side) // 2, (width - side) // 2
    return resized(image[:, top : top + side, left : left + side], CENTRAL_SIDE, CENTRAL_SIDE)
