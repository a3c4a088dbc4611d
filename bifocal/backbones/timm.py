"""Backbones of timm: an image in, the map of a layer out."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor, nn

from bifocal.backbones.preprocessing import Resize, normalized, resized, to_pixels
from bifocal.registry import suggest


class TimmBackbone:
    """A model of timm, without its classifier unless that is wanted, as a maker of features; frozen, random weights.

    Args:
        name: of the model, with or without the tag of its weights ("resnet152.a1_in1k").
        size: pixels, of the side of a square image, or of the largest side.
        resize: "square", irrespective of the aspect, or "aspect", which keeps it.
        mean, std: of each channel, of pixels in [0, 1]; None for those that timm states for the weights.
        model_arguments: more keyword arguments of ``timm.create_model``.
        classifies: keep the classifier, for ``class_maps``.

    Attributes:
        network: the model.
        head: first word of the names of its classifier's weights.

    Raises:
        ValueError: timm has no such model.
    """

    def __init__(
        self,
        name: str,
        size: int,
        resize: Resize,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        model_arguments: dict[str, Any] | None,
        classifies: bool = False,
    ) -> None:
        import timm  # here, because it takes seconds to load and whoever reads a store does without it

        self.name, self.size, self.resize = name, size, resize
        self.model_arguments, self.classifies = model_arguments or {}, classifies
        try:
            self.network = timm.create_model(name, **self._arguments)
        except RuntimeError as error:
            raise ValueError(f"timm has no backbone {name!r}: {error}; see timm.list_models()") from error
        self.network = self.network.eval().requires_grad_(False)
        config = self.network.pretrained_cfg
        self.mean, self.std = tuple(mean or config["mean"]), tuple(std or config["std"])
        self.interpolation: str = config["interpolation"]
        self.head: str = config["classifier"].split(".")[0]

    @property
    def stages(self) -> int:
        """Number of the stages that ``feature_map`` knows."""
        return len(self.network.feature_info)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return cast(torch.device, next(self.network.parameters()).device)

    def describe(self) -> dict[str, Any]:
        """Model and preprocessing."""
        return {
            "backbone": self.name,
            "model_arguments": self.model_arguments,
            "preprocessing": {
                "size": self.size,
                "resize": self.resize,
                "interpolation": self.interpolation,
                "mean": self.mean,
                "std": self.std,
            },
        }

    def pretrained(self) -> dict[str, Tensor]:
        """timm's weights of this model."""
        import timm

        model = timm.create_model(self.name, pretrained=True, **self._arguments)
        return cast(dict[str, Tensor], model.state_dict())

    def address(self) -> str:
        """The file on the hub that timm downloads."""
        return f"https://huggingface.co/{self.network.pretrained_cfg.get('hf_hub_id')}/resolve/main/model.safetensors"

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize: uint8 (3, H, W)."""
        return to_pixels(resized(image, self.size, self.resize, self.interpolation))

    def normalized(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 as the network expects it, on its device."""
        return normalized(pixels.to(self.device), self.mean, self.std)

    def feature_map(self, pixels: Tensor, stage: int | None) -> Tensor:
        """Images (B, 3, H, W) uint8 to the map (B, C, h, w) of a stage, or of ``forward_features`` if it is None.

        Raises:
            ValueError: the features are no map of cells.
        """
        inputs = self.normalized(pixels)
        if stage is not None:
            (features,) = self.network.forward_intermediates(
                inputs, indices=[stage], stop_early=True, intermediates_only=True
            )
            return cast(Tensor, features)
        features = self.network.forward_features(inputs)
        if features.ndim != 4:
            raise ValueError(
                f"{self.name} gives features {tuple(features.shape)}, no map of cells: "
                f"name one of its {self.stages} stages with stage: 0 ..."
            )
        channels_first = getattr(self.network, "output_fmt", "NCHW") == "NCHW"
        return cast(Tensor, features if channels_first else features.permute(0, 3, 1, 2))

    def check_stage(self, stage: int) -> None:
        """Raise ``ValueError`` unless the network has this stage."""
        if not 0 <= stage < self.stages:
            raise ValueError(f"{self.name} has no stage {stage}: it has {self.stages}, counted from 0")

    def check_layers(self, names: Sequence[str]) -> None:
        """Raise ``ValueError`` unless the network has modules of these names; the message names the nearest."""
        known = dict(self.network.named_modules())
        for name in names:
            if name not in known:
                blocks = [module for module in known if module and module.count(".") < 2]
                raise ValueError(f"{self.name} has no layer {name!r}; {suggest(name, blocks)}")

    def layer_maps(self, pixels: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Images (B, 3, H, W) uint8 to the maps (B, C, h, w) that the modules ``names`` put out."""
        maps: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
            return lambda module, inputs, output: maps.update({name: output})

        hooks = [self.network.get_submodule(name).register_forward_hook(keep(name)) for name in names]
        try:
            self.network.forward_features(self.normalized(pixels))
        finally:
            for hook in hooks:
                hook.remove()
        return [maps[name] for name in names]

    def class_maps(self, features: Tensor) -> Tensor:
        """The last map (B, C, h, w) to the probabilities (B, K, h, w) of the classes, were each cell an image.

        The classifier of a mean over cells, in each of them: Zhou et al., "Learning deep features for discriminative
        localization", CVPR 2016, section 2.

        Raises:
            ValueError: the classifier reads something else than this map's mean.
        """
        classifier = self.network.get_classifier() if self.classifies else None
        if not isinstance(classifier, nn.Linear) or classifier.in_features != features.shape[1]:
            raise ValueError(
                f"{self.name} classifies by {classifier}, no linear map of the {features.shape[1]} channels of its "
                "last map: do without its classes, or name another last layer"
            )
        return cast(Tensor, classifier(features.movedim(1, 3))).softmax(dim=3).movedim(3, 1)

    @property
    def _arguments(self) -> dict[str, Any]:
        return ({} if self.classifies else {"num_classes": 0}) | self.model_arguments
