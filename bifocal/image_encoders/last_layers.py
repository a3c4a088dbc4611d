"""The last layers of a backbone, trained on stored maps of the layer before them."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.backbones.state import load_feature_weights
from bifocal.backbones.timm.backbone import TimmBackbone
from bifocal.backbones.timm.config import BackboneConfig
from bifocal.backbones.timm.last_layers import LastLayers
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes, mirrored
from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization.base import RegionVectors

EPSILON = 1e-4
"""Added to the magnitude of an activation: the gradient of a power below 1 is infinite at 0."""


class LastLayersEncoder(ImageEncoder):
    """The last layers of a timm backbone, the mean of their cells, and an affine map, l2-normalized.

    Fine-tuning as in VSE++ (Faghri et al., BMVC 2018, section 4), of only the last layers: the layers before them are
    frozen, and their maps are computed once, by the extractor Grid with ``stage: LAYER``. Each activation x becomes
    sign(x) |x|^power (Perronnin, Sanchez, Mensink, ECCV 2010, eq. (4)). The mean of the cells is standardized per
    channel, as batch norm without weights does.

    With ``mirror``, the features hold the cells of the image and of the mirrored image (Grid, ``mirror: true``). A
    training step sees one of the two, drawn for each image. In evaluation, the cells of both are averaged.

    The layers are the module ``image_encoder.layers``: ``learning_rate_factors: {image_encoder.layers: 0.5}`` gives
    them a learning rate of their own. Their batch norm keeps the statistics of the pretrained weights.

    Args:
        input_dim: D, channels of the stored maps.
        dim: d, dimension of the embedding.
        backbone: name of the timm model that the features were extracted with.
        layer: name of the layer whose maps are stored.
        cells: s, cells per side of a stored map.
        mirror: whether the features hold the cells of the mirrored image, too.
        power: of the last activations, in (0, 1].
        dropout: probability with which a channel of the mean is zero in training.
        model_arguments: further keyword arguments of ``timm.create_model``.

    Shape:
        features (B, R, D), mask (B, R) bool, true for the first s x s regions, or 2 x s x s with ``mirror``
        -> (B, d), of unit norm.

    Raises:
        ValueError: timm has no such model, the model has no such layer, or a number is out of range.

    Example:
        >>> encoder = LastLayersEncoder(input_dim=256, dim=4, backbone="resnet10t", layer="layer3", cells=4)
        >>> encoder(torch.rand(2, 32, 256), torch.ones(2, 32, dtype=torch.bool)).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        input_dim: int = 208,
        dim: int = 512,
        backbone: str = "tf_efficientnet_lite2.in1k",
        layer: str = "blocks.5",
        cells: int = 9,
        mirror: bool = True,
        power: float = 0.5,
        dropout: float = 0.2,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        if not 0 < power <= 1 or not 0 <= dropout < 1:
            raise ValueError(f"power {power}, dropout {dropout}: expected numbers in (0, 1] and [0, 1)")
        super().__init__(input_dim, dim)
        self.config = BackboneConfig(backbone, model_arguments=model_arguments)
        self.layer, self.cells, self.views, self.power = layer, cells, 1 + mirror, power
        network = self._backbone().network
        self.layers = LastLayers(network.requires_grad_(True), layer)
        self.standardize = nn.BatchNorm1d(network.num_features, affine=False)
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(network.num_features, dim)

    def _backbone(self) -> TimmBackbone:
        backbone = TimmBackbone(self.config)
        backbone.check_layers([self.layer])
        return backbone

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        """Shape of the features; the layers behind them need all cells of a map."""
        return ("batch", self.views * self.cells**2, self.input_dim)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        maps = self._maps(features, mask)
        if self.training:
            chosen = torch.randint(maps.shape[1], (len(maps),), device=maps.device)
            maps = maps[torch.arange(len(maps), device=maps.device), chosen].unsqueeze(1)
        pooled = self.standardize(self._activations(maps).mean(dim=(1, 2)))
        return normalize(self.projection(self.dropout(pooled)), dim=1)

    def activation_maps(self, regions: RegionBatch) -> RegionVectors:
        """Return the cells in the joint space before normalization; their mean, normalized, is the embedding."""
        cells = self._activations(self._maps(self.to_dtype(regions.features), regions.mask))
        side = math.isqrt(cells.shape[2])
        boxes = cell_boxes(side, side).to(cells)
        # Not len(cells), which would fix the batch size of an exported graph.
        boxes = torch.cat([boxes, mirrored(boxes)][: self.views]).expand(cells.shape[0], -1, -1)
        vectors = self.projection(self.standardize(cells.flatten(1, 2).transpose(1, 2)).transpose(1, 2))
        return RegionVectors(vectors, boxes.new_ones(boxes.shape[:2], dtype=torch.bool), boxes)

    def _maps(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the stored maps (B, views, D, s, s)."""
        count = self.views * self.cells**2
        present = mask[:, :count]
        if not torch.compiler.is_exporting() and (
            not present.all() or present.sum() != mask.sum() or present.shape[1] != count
        ):
            raise ValueError(
                f"features {tuple(features.shape)}, {int(mask.sum())} regions in all: expected {count} cells of every "
                f"image; extract features with Grid, stage {self.layer}, of square images, and set cells and mirror "
                "to the values of the features"
            )
        features = features[:, :count]
        maps: Tensor = features.transpose(1, 2).unflatten(2, (self.views, self.cells, self.cells))
        return maps.transpose(1, 2)

    def _activations(self, maps: Tensor) -> Tensor:
        """Return the last activations (B, views, cells, C) of maps (B, views, D, s, s)."""
        last: Tensor = self.layers(maps.flatten(0, 1))
        raised = last.sign() * (last.abs() + EPSILON).pow(self.power)
        activations: Tensor = raised.flatten(2).transpose(1, 2).unflatten(0, maps.shape[:2])
        return activations

    def load_pretrained(self, directory: Path) -> None:
        """Load the weights that the extractor Grid keeps with the features in ``directory``."""
        backbone = self._backbone()
        load_feature_weights(backbone.network, directory, backbone.classifier_prefix)
        self.layers.load_state_dict(LastLayers(backbone.network, self.layer).state_dict())
