"""A backbone inside an encoder that never trains: the outputs of several layers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from bifocal.backbones.state import load_feature_weights
from bifocal.backbones.timm.backbone import TimmBackbone
from bifocal.backbones.timm.config import BackboneConfig


class FrozenLayers(nn.Module):
    """Layer outputs (B, C, h, w) of a frozen timm model, by name, for square images with ``size`` pixels."""

    def __init__(
        self, name: str, layers: Sequence[str], size: int, model_arguments: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.backbone, self.layers = TimmBackbone(BackboneConfig(name, size, model_arguments=model_arguments)), layers
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
        """Load the weights that the extractors ImageFiles and Pixels keep in a feature directory."""
        load_feature_weights(self.network, directory, self.backbone.classifier_prefix)
