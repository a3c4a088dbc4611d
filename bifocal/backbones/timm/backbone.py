"""Backbones of timm: images to the feature map of a layer."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import torch
from PIL import Image
from torch import Tensor, nn

from bifocal.backbones.base import DescribedBackbone
from bifocal.backbones.hub import file_address
from bifocal.backbones.preprocessing import normalize_pixels, to_pixels
from bifocal.backbones.timm.config import BackboneConfig
from bifocal.backbones.timm.input import check_input_size, input_resize, input_size, scaled_side
from bifocal.backbones.timm.tokens import class_and_mean, is_transformer, normalized, token_map
from bifocal.onnx.resizing import ResizeOrCrop, resize_image, resize_shorter
from bifocal.registry import suggest

Pooling = Literal["network", "class_and_mean"]


class TimmBackbone(DescribedBackbone):
    """A frozen timm model with random weights; without its classifier, unless ``with_classifier``."""

    def __init__(self, config: BackboneConfig, with_classifier: bool = False) -> None:
        import timm  # imported here: it takes seconds, and a process that only reads a store does not need it

        self.config, self.name = config, config.backbone
        self.model_arguments, self.with_classifier = config.model_arguments or {}, with_classifier
        try:
            self.network = timm.create_model(self.name, **self._create_arguments)
        except RuntimeError as error:
            raise ValueError(f"timm has no backbone {self.name!r}: {error}; see timm.list_models()") from error
        self.network = self.network.eval().requires_grad_(False)
        pretrained = self.network.pretrained_cfg
        self.mean, self.std = tuple(config.mean or pretrained["mean"]), tuple(config.std or pretrained["std"])
        self.interpolation: str = pretrained["interpolation"]
        self.classifier_prefix: str = pretrained["classifier"].split(".")[0]
        self.size = config.size or input_size(pretrained, self.model_arguments)
        self.resize: ResizeOrCrop = config.resize or ("square" if config.size else input_resize(pretrained))
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
        """Return the address of the file that timm downloads from the Hugging Face hub, or from its mirror."""
        return file_address(str(self.network.pretrained_cfg.get("hf_hub_id")), "model.safetensors")

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize an RGB image and return its pixels (3, H, W) uint8; with the resize "crop", before the crop."""
        if self.resize == "crop":
            return to_pixels(resize_shorter(image, self.scaled, self.interpolation))
        return to_pixels(resize_image(image, self.size, self.resize, self.interpolation))

    def normalize(self, pixels: Tensor) -> Tensor:
        """Return the network's input for pixels (B, 3, H, W) uint8, on the network's device."""
        return normalize_pixels(pixels.to(self.device), self.mean, self.std)

    def blank_image(self) -> Tensor:
        """Return a black square image (1, 3, size, size) uint8, from which the shapes of feature maps are measured."""
        return torch.zeros(1, 3, self.size, self.size, dtype=torch.uint8)

    def feature_map(self, pixels: Tensor, stage: int | None) -> Tensor:
        """Map images (B, 3, H, W) uint8 to a stage's (B, C, h, w); None for ``forward_features``."""
        inputs = self.normalize(pixels)
        if stage is not None:
            norm = {"norm": True} if is_transformer(self.network) else {}
            (features,) = self.network.forward_intermediates(
                inputs, indices=[stage], stop_early=True, intermediates_only=True, **norm
            )
            return normalized(self.network, features.movedim(1, 3)).movedim(3, 1) if norm else cast(Tensor, features)
        features = self.network.forward_features(inputs)
        if features.ndim == 3:
            return token_map(self.network, features, *inputs.shape[2:])
        channels_first = getattr(self.network, "output_fmt", "NCHW") == "NCHW"
        return cast(Tensor, features if channels_first else features.permute(0, 3, 1, 2))

    def pooled(self, pixels: Tensor, pooling: Pooling) -> Tensor:
        """Map images (B, 3, H, W) uint8 to vectors (B, C): "network" pools as for timm's classifier."""
        features = self.network.forward_features(self.normalize(pixels))
        if pooling == "class_and_mean":
            return class_and_mean(self.network, features)
        return cast(Tensor, self.network.forward_head(features, pre_logits=True))

    def check_size(self) -> None:
        """Raise ``ValueError`` if the network takes images of another size."""
        check_input_size(self.network, self.name, self.size)

    def check_stage(self, stage: int) -> None:
        """Raise ``ValueError`` unless the network has this stage."""
        if not 0 <= stage < self.stages:
            raise ValueError(f"{self.name} has no stage {stage}: it has {self.stages}, counted from 0")

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

        hooks = [self.network.get_submodule(name).register_forward_hook(store_as(name)) for name in names]
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
        """Apply the classifier to each cell of the last map: (B, C, h, w) -> (B, K, h, w); Zhou et al., CVPR 2016."""
        classifier, channels = self.network.get_classifier() if self.with_classifier else None, features.shape[1]
        if not isinstance(classifier, nn.Linear) or classifier.in_features != channels:
            raise ValueError(
                f"the classifier of {self.name} is {classifier}, expected a linear layer on the {channels} "
                "channels of the last map: set classes to false, or name another last layer"
            )
        return cast(Tensor, classifier(features.movedim(1, 3))).softmax(dim=3).movedim(3, 1)

    @property
    def _create_arguments(self) -> dict[str, Any]:
        return ({} if self.with_classifier else {"num_classes": 0}) | self.model_arguments
