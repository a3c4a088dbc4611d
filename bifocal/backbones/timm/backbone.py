"""A timm model as a backbone: its configuration, the size of its images, feature maps and
tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, isqrt
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor, nn

from bifocal.backbones.base import DescribedBackbone, normalize_pixels, to_pixels
from bifocal.backbones.hub import file_address
from bifocal.onnx.pixels import ResizeOrCrop, resize_image, resize_shorter
from bifocal.registry import suggest


@dataclass(frozen=True)
class BackboneConfig:
    """A timm model and the preprocessing of its images; None stands for the value that timm states
    for the weights."""

    backbone: str  # with or without the tag of the weights ("resnet152.a1_in1k")
    size: int | None = None  # side in pixels; the longer side with the resize "aspect"
    resize: ResizeOrCrop | None = None  # None: "square" if ``size`` is given
    mean: tuple[float, float, float] | None = None  # of each channel, of pixels in [0, 1]
    std: tuple[float, float, float] | None = None
    model_arguments: dict[str, Any] | None = None  # of ``timm.create_model``


def input_size(configuration: Mapping[str, Any], model_arguments: Mapping[str, Any]) -> int:
    """Return the side of the square that the model takes, in pixels; ``img_size`` replaces timm's
    size."""
    size = model_arguments.get("img_size", configuration["input_size"][1:])
    height, width = (size, size) if isinstance(size, int) else size
    if height != width:
        raise ValueError(
            f"{configuration['architecture']} takes images of {height} x {width} pixels, not "
            "square: set size"
        )
    return int(height)


def input_resize(configuration: Mapping[str, Any]) -> ResizeOrCrop:
    """Return how timm brings images to the size of the model: "crop", or "square" for its mode
    "squash"."""
    mode, share = configuration["crop_mode"], configuration["crop_pct"]
    if mode == "center":
        return "crop"
    if mode == "squash" and share == 1:
        return "square"
    raise ValueError(
        f"timm crops images of {configuration['architecture']} by {mode!r} with crop_pct "
        f"{share}: set resize to square, aspect or crop"
    )


def scaled_side(configuration: Mapping[str, Any], size: int) -> int:
    """Return the pixels of the shorter side before the central square of ``size`` pixels is
    cropped, as timm's."""
    share: float = configuration["crop_pct"]
    return floor(size / share)


def check_input_size(network: nn.Module, name: str, size: int) -> None:
    """Raise ``ValueError`` if a transformer with fixed positions takes images of another size."""
    embedding = getattr(network, "patch_embed", None)
    expected = getattr(embedding, "img_size", None)
    if (
        getattr(embedding, "strict_img_size", False)
        and expected is not None
        and tuple(expected) != (size, size)
    ):
        raise ValueError(
            f"{name} takes images of {expected[0]} x {expected[1]} pixels, not {size}: "
            f"set model_arguments to {{img_size: {size}}}, or leave size out"
        )


def is_transformer(network: nn.Module) -> bool:
    """Return whether the network puts class tokens or registers before the tokens of the
    patches."""
    return hasattr(network, "num_prefix_tokens")


def prefix_tokens(network: nn.Module) -> int:
    """Return the number of class tokens and registers before the tokens of the patches."""
    return int(getattr(network, "num_prefix_tokens", 0))


def token_map(network: nn.Module, tokens: Tensor, height: int, width: int) -> Tensor:
    """Return the normalized tokens (B, T, C) of the patches, without class tokens, as a map (B, C,
    rows, columns)."""
    patches = normalized(network, tokens[:, prefix_tokens(network) :])
    rows, columns = _grid_size(network, patches.shape[1], height, width)
    cells: Tensor = patches.transpose(1, 2).unflatten(2, (rows, columns))
    return cells


def normalized(network: nn.Module, tokens: Tensor) -> Tensor:
    """Apply the normalization that timm applies to the mean of the tokens, if the tokens (B, T, C)
    have had none."""
    norm, pooled_norm = getattr(network, "norm", None), getattr(network, "fc_norm", None)
    if not isinstance(norm, nn.Identity) or pooled_norm is None:
        return tokens
    normalized_tokens: Tensor = pooled_norm(tokens)
    return normalized_tokens


def _grid_size(network: nn.Module, tokens: int, height: int, width: int) -> tuple[int, int]:
    embedding = getattr(network, "patch_embed", None)
    if embedding is not None and hasattr(embedding, "dynamic_feat_size"):
        rows, columns = embedding.dynamic_feat_size((height, width))
        if rows * columns == tokens:
            return rows, columns
    if height == width and isqrt(tokens) ** 2 == tokens:
        return isqrt(tokens), isqrt(tokens)
    raise ValueError(
        f"{type(network).__name__} gives {tokens} tokens for {height} x {width} pixels, not a "
        "grid of patches: set stage to one of its stages, counted from 0"
    )


class TimmBackbone(DescribedBackbone):
    """A frozen timm model with random weights; without its classifier, unless
    ``with_classifier``."""

    def __init__(self, config: BackboneConfig, with_classifier: bool = False) -> None:
        # imported here: it takes seconds, and a process that only reads a store does not need it
        import timm

        self.config, self.name = config, config.backbone
        self.model_arguments, self.with_classifier = config.model_arguments or {}, with_classifier
        try:
            self.network = timm.create_model(self.name, **self._create_arguments)
        except RuntimeError as error:
            raise ValueError(
                f"timm has no backbone {self.name!r}: {error}; see timm.list_models()"
            ) from error
        self.network = self.network.eval().requires_grad_(False)
        pretrained = self.network.pretrained_cfg
        self.mean, self.std = (
            tuple(config.mean or pretrained["mean"]),
            tuple(config.std or pretrained["std"]),
        )
        self.interpolation: str = pretrained["interpolation"]
        self.classifier_prefix: str = pretrained["classifier"].split(".")[0]
        self.size = config.size or input_size(pretrained, self.model_arguments)
        self.resize: ResizeOrCrop = config.resize or (
            "square" if config.size else input_resize(pretrained)
        )
        self.scaled = scaled_side(pretrained, self.size)

    @property
    def stages(self) -> int:
        """Number of stages that ``feature_map`` can return."""
        return len(self.network.feature_info)

    @property
    def device(self) -> torch.device:
        return cast(torch.device, next(self.network.parameters()).device)

    def pretrained_state(self) -> dict[str, Tensor]:
        """Download and return timm's weights of this model."""
        import timm

        model = timm.create_model(self.name, pretrained=True, **self._create_arguments)
        return cast(dict[str, Tensor], model.state_dict())

    def download_url(self) -> str:
        """Return the address of the file that timm downloads from the Hugging Face hub, or from its
        mirror."""
        return file_address(str(self.network.pretrained_cfg.get("hf_hub_id")), "model.safetensors")

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize an RGB image and return its pixels (3, H, W) uint8; with the resize "crop", before
        the crop."""
        if self.resize == "crop":
            return to_pixels(resize_shorter(image, self.scaled, self.interpolation))
        return to_pixels(resize_image(image, self.size, self.resize, self.interpolation))

    def normalize(self, pixels: Tensor) -> Tensor:
        """Return the network's input for pixels (B, 3, H, W) uint8, on the network's device."""
        return normalize_pixels(pixels.to(self.device), self.mean, self.std)

    def blank_image(self) -> Tensor:
        """Return a black square image (1, 3, size, size) uint8, from which the shapes of feature
        maps are measured."""
        return torch.zeros(1, 3, self.size, self.size, dtype=torch.uint8)

    def feature_map(self, pixels: Tensor, stage: int | None) -> Tensor:
        """Map images (B, 3, H, W) uint8 to a stage's (B, C, h, w); None for
        ``forward_features``."""
        inputs = self.normalize(pixels)
        if stage is not None:
            norm = {"norm": True} if is_transformer(self.network) else {}
            (features,) = self.network.forward_intermediates(
                inputs, indices=[stage], stop_early=True, intermediates_only=True, **norm
            )
            return (
                normalized(self.network, features.movedim(1, 3)).movedim(3, 1)
                if norm
                else cast(Tensor, features)
            )
        features = self.network.forward_features(inputs)
        if features.ndim == 3:
            return token_map(self.network, features, *inputs.shape[2:])
        channels_first = getattr(self.network, "output_fmt", "NCHW") == "NCHW"
        return cast(Tensor, features if channels_first else features.permute(0, 3, 1, 2))

    def check_size(self) -> None:
        """Raise ``ValueError`` if the network takes images of another size."""
        check_input_size(self.network, self.name, self.size)

    def check_stage(self, stage: int) -> None:
        """Raise ``ValueError`` unless the network has this stage."""
        if not 0 <= stage < self.stages:
            raise ValueError(
                f"{self.name} has no stage {stage}: it has {self.stages}, counted from 0"
            )

    def check_layers(self, names: Sequence[str]) -> None:
        """Raise ``ValueError`` unless the network has modules of these names."""
        known = dict(self.network.named_modules())
        for name in names:
            if name not in known:
                blocks = [module for module in known if module and module.count(".") < 2]
                raise ValueError(f"{self.name} has no layer {name!r}; {suggest(name, blocks)}")

    def layer_maps(self, pixels: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Map images (B, 3, H, W) uint8 to the outputs (B, C, h, w) of the modules ``names``."""
        maps: dict[str, Tensor] = {}

        def store_as(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
            return lambda module, inputs, output: maps.update({name: output})

        hooks = [
            self.network.get_submodule(name).register_forward_hook(store_as(name)) for name in names
        ]
        try:
            self.network.forward_features(self.normalize(pixels))
        finally:
            for hook in hooks:
                hook.remove()
        return [maps[name] for name in names]

    def layer_channels(self, names: Sequence[str]) -> list[int]:
        """Return the number of output channels of each module in ``names``."""
        with torch.no_grad():
            return [maps.shape[1] for maps in self.layer_maps(self.blank_image(), names)]

    def class_maps(self, features: Tensor) -> Tensor:
        """Apply the classifier to each cell of the last map: (B, C, h, w) -> (B, K, h, w); Zhou et
        al., CVPR 2016."""
        classifier, channels = (
            self.network.get_classifier() if self.with_classifier else None,
            features.shape[1],
        )
        if not isinstance(classifier, nn.Linear) or classifier.in_features != channels:
            raise ValueError(
                f"the classifier of {self.name} is {classifier}, expected a linear layer on "
                f"the {channels} channels of the last map: set classes to false, or name "
                "another last layer"
            )
        return cast(Tensor, classifier(features.movedim(1, 3))).softmax(dim=3).movedim(3, 1)

    @property
    def _create_arguments(self) -> dict[str, Any]:
        return ({} if self.with_classifier else {"num_classes": 0}) | self.model_arguments
