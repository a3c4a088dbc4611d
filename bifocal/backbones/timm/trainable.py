"""A timm model inside an encoder: trainable, frozen, or with trainable last layers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, fx, nn
from torch.nn.functional import interpolate

from bifocal.backbones.state import load_feature_weights
from bifocal.backbones.timm.backbone import BackboneConfig, TimmBackbone

EvalResize = Literal["stretch", "scale_and_crop", "as_is"]
"""Resizing of images in evaluation. ``stretch``: to a square, which changes the aspect ratio (BEAN,
section 4.2).
``scale_and_crop``: the shorter side to 256 pixels, then the central 224 x 224 (VSE++). ``as_is``:
no resizing."""
CROP_SIZE, SHORTER_SIDE = 224, 256
MIN_CROP_AREA, CROP_ASPECTS = 0.08, (3 / 4, 4 / 3)
EVAL_BATCH_SIZE = 32
"""Images per forward pass in evaluation: bounds the memory for maps when a whole collection is
embedded."""


class TailLayers(nn.Module):
    """The layers of a timm model from the output of ``after`` to ``forward_features``.

    The statistics of batch norm and the weights of grouped convolutions, such as depthwise ones,
    are frozen.

    Called with maps of ``after``, it returns the outputs of the layers ``also``, and last of
    ``forward_features``. ``also`` may name ``after``.
    """

    def __init__(self, network: nn.Module, after: str, also: Sequence[str] = ()) -> None:
        super().__init__()
        if not after or after not in dict(network.named_modules()):
            raise ValueError(f"{type(network).__name__} has no layer {after!r}")
        self.layers = fx.GraphModule(network, _Tracer(after).trace(network))
        graph = self.layers.graph
        inputs = [node for node in graph.nodes if node.target == after]
        if len(inputs) != 1:
            raise ValueError(
                f"{after} is not a step of {type(network).__name__}.forward_features: name "
                "another layer"
            )
        (image,) = [node for node in graph.nodes if node.op == "placeholder"]
        with graph.inserting_after(image):
            maps = graph.placeholder("maps")
        inputs[0].replace_all_uses_with(maps)
        (output,) = [node for node in graph.nodes if node.op == "output"]
        others = [maps if name == after else _last_node(graph, network, name) for name in also]
        output.args = ([*others, output.args[0]],)
        graph.eliminate_dead_code()
        if image.users:
            raise ValueError(
                f"the layers behind {after} read outputs of earlier layers, too: name a later layer"
            )
        graph.erase_node(image)
        self.layers.delete_all_unused_submodules()
        self.layers.recompile()
        for module in self.layers.modules():
            if isinstance(module, nn.Conv2d) and module.groups > 1:
                module.requires_grad_(False)

    def forward(self, maps: Tensor) -> list[Tensor]:
        features: list[Tensor] = self.layers(maps)
        return features

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all layers but batch norm, which stays in evaluation mode."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self


def _last_node(graph: fx.Graph, network: nn.Module, name: str) -> fx.Node:
    """Return the node of a layer, or of the last layer of a sequence."""
    found = [
        node
        for node in graph.nodes
        if node.op == "call_module" and f"{node.target}.".startswith(f"{name}.")
    ]
    if not found or not name:
        raise ValueError(
            f"{name!r} is not a step of {type(network).__name__}.forward_features: name "
            "another layer"
        )
    last: fx.Node = found[-1]
    return last


class _Tracer(fx.Tracer):
    """Follows ``forward_features`` through sequences down to single blocks, but not into
    ``after``."""

    traced_func_name = "forward_features"

    def __init__(self, after: str) -> None:
        super().__init__()
        self.after = after

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one node of the graph."""
        return module_qualified_name == self.after or not isinstance(m, nn.Sequential)


class FrozenLayers(nn.Module):
    """Layer outputs (B, C, h, w) of a frozen timm model, by name, for square images with ``size``
    pixels."""

    def __init__(
        self,
        name: str,
        layers: Sequence[str],
        size: int,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.backbone, self.layers = (
            TimmBackbone(BackboneConfig(name, size, model_arguments=model_arguments)),
            layers,
        )
        self.backbone.check_layers(layers)
        self.network = self.backbone.network

    @property
    def channels(self) -> list[int]:
        """Number of channels of each layer."""
        return self.backbone.layer_channels(self.layers)

    def forward(self, pixels: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return self.backbone.layer_maps(pixels, self.layers)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)

    def load_pretrained(self, directory: Path) -> None:
        """Load the weights that the extractors ImageFiles and Pixels keep in a feature
        directory."""
        load_feature_weights(self.network, directory, self.backbone.classifier_prefix)


class PixelBackbone(nn.Module):
    """A timm backbone with normalization and without its classifier; random weights until
    ``load_pretrained``.

    Pixels (B, 3, H, W), bytes or floats from 0 to 255, become maps (B, C, h, w); H and W are free
    if the model is fully convolutional.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, model_arguments: dict[str, Any] | None = None) -> None:
        super().__init__()
        backbone = TimmBackbone(BackboneConfig(name, CROP_SIZE, model_arguments=model_arguments))
        self.network = backbone.network.requires_grad_(True).train()
        self.channels: int = backbone.network.num_features
        self.classifier_prefix = backbone.classifier_prefix
        for statistic in ("mean", "std"):
            values = torch.tensor(getattr(backbone, statistic)).view(3, 1, 1)
            self.register_buffer(statistic, 255 * values, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        inputs = ((pixels - self.mean) / self.std).contiguous(memory_format=torch.channels_last)
        features: Tensor = self.network.forward_features(inputs)
        return features

    def load_pretrained(self, directory: Path) -> dict[str, Tensor]:
        """Load the backbone's weights from a feature directory; return the tensors of other modules
        by name."""
        return load_feature_weights(self.network, directory, self.classifier_prefix)


def resize_for_eval(
    pixels: Tensor, mask: Tensor, method: EvalResize, image_size: int
) -> list[Tensor]:
    """Cut the padding from B images (B, 3, H, W) and resize them as in evaluation, to
    ``image_size`` pixels."""
    if method == "stretch":
        return [
            resize_pixels(image, image_size, image_size) for image in whole_images(pixels, mask)
        ]
    if method == "scale_and_crop":
        return [center_crop(image) for image in whole_images(pixels, mask)]
    return whole_images(pixels, mask)


def whole_images(pixels: Tensor, mask: Tensor) -> list[Tensor]:
    """Return each image without its padding, which is on the right and at the bottom."""
    heights, widths = mask.any(dim=2).sum(dim=1).tolist(), mask.any(dim=1).sum(dim=1).tolist()
    return [image[:, :h, :w] for image, h, w in zip(pixels, heights, widths, strict=True)]


def random_crops(
    images: Sequence[Tensor], size: int, min_area: float = MIN_CROP_AREA, *, mirror: bool = False
) -> Tensor:
    """Return a random crop of each of B images, resized to (B, 3, size, size), as in VSE++ and BEAN
    (section 4.1).

    With ``mirror``, half of the crops are mirrored, at random.
    """
    from torchvision.transforms.v2 import RandomResizedCrop  # imported here: it takes seconds

    transform = RandomResizedCrop(size, scale=(min_area, 1.0), ratio=CROP_ASPECTS)
    crops = []
    for image in images:
        box = transform.make_params([image])
        top, left, height, width = (box[name] for name in ("top", "left", "height", "width"))
        crop = resize_pixels(image[:, top : top + height, left : left + width], size, size)
        crops.append(crop.flip(2) if mirror and torch.rand(()) < 0.5 else crop)
    return torch.stack(crops)


def resize_pixels(image: Tensor, height: int, width: int) -> Tensor:
    """Resize an image (3, H, W) bilinearly, with antialiasing; bytes become float32."""
    image = image if image.is_floating_point() else image.float()
    if image.shape[1:] == (height, width):
        return image
    size = (height, width)
    return interpolate(
        image.unsqueeze(0), size=size, mode="bilinear", antialias=True, align_corners=False
    )[0]


def scale_shorter_side(image: Tensor) -> Tensor:
    """Resize an image (3, H, W) so that its shorter side has 256 pixels."""
    height, width = image.shape[1:]
    scale = SHORTER_SIDE / min(height, width)
    return resize_pixels(image, round(height * scale), round(width * scale))


def center_crop(image: Tensor) -> Tensor:
    """Crop the central square, whose side is 224/256 of the shorter side, and resize it to (3, 224,
    224)."""
    height, width = image.shape[1:]
    side = max(1, round(min(height, width) * CROP_SIZE / SHORTER_SIDE))
    top, left = (height - side) // 2, (width - side) // 2
    return resize_pixels(image[:, top : top + side, left : left + side], CROP_SIZE, CROP_SIZE)
