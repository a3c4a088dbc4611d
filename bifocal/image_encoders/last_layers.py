"""The last layers of a backbone, trained on stored maps of the layer before them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, normalize

from bifocal.backbones.state import load_feature_weights
from bifocal.backbones.timm.backbone import BackboneConfig, TimmBackbone
from bifocal.backbones.timm.trainable import EVAL_BATCH_SIZE, TailLayers
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes, mirrored
from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization.base import RegionVectors

EPSILON = 1e-4
"""Added to the magnitude of an activation: the gradient of a power below 1 is infinite at 0."""


class _SignedPower(torch.autograd.Function):
    """sign(x) (|x| + EPSILON)^power; its gradient is computed from the output, in half the time of
    autograd's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, power: float) -> Tensor:
        raised = signed_power(x, power)
        ctx.save_for_backward(raised)
        ctx.power = power
        return raised

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (raised,) = ctx.saved_tensors
        return raised.abs().pow_(1 - 1 / ctx.power).mul_(ctx.power).mul_(gradients[0]), None


def signed_power(x: Tensor, power: float) -> Tensor:
    """Return sign(x) (|x| + EPSILON)^power of activations of any shape; sign(0) is 1, sign(-0) is
    -1 in torch."""
    # In place: memory for new tensors takes several times as long as the arithmetic.
    raised = x.abs().add_(EPSILON).pow_(power)
    return (
        torch.where(x < 0, -raised, raised)
        if torch.compiler.is_exporting()
        else raised.copysign_(x)
    )


class LastLayersEncoder(ImageEncoder):
    """The last layers of a timm backbone, the means of their cells, and an affine map,
    l2-normalized.

    Fine-tuning as in VSE++ (Faghri et al., BMVC 2018, section 4), of only the last layers: the
    layers before them are frozen, and their maps are computed once, by the extractor Grid with
    ``stage: LAYER``. Each activation x becomes sign(x) |x|^power (Perronnin, Sanchez, Mensink, ECCV
    2010, eq. (4)). The mean of the cells is standardized per channel, as batch norm without weights
    does. With ``also``, the mean has the channels of further layers.

    With ``mirror``, the features hold the cells of the image and of the mirrored image (Grid,
    ``mirror: true``). A training step sees one of the two, drawn for each image. In evaluation, the
    cells of both are averaged. The augmentation ``RandomRectangle`` shows a training step a part of
    the map.

    The layers are the module ``image_encoder.layers``:
    ``learning_rate_factors: {image_encoder.layers: 0.5}`` gives them a learning rate of their own.
    Their batch norm keeps the statistics of the pretrained weights, and their depthwise
    convolutions keep the weights, whose gradient takes 40 % of a step on a CPU.

    Args:
        input_dim: D, channels of the stored maps.
        dim: d, dimension of the embedding.
        backbone: name of the timm model that the features were extracted with.
        layer: name of the layer whose maps are stored.
        cells: s, cells per side of a stored map.
        also: names of further layers, each ``layer`` or a later one. Their channels are added to
            the last layer's.
        mirror: whether the features hold the cells of the mirrored image, too.
        power: of the activations, in (0, 1].
        dropout: probability with which a channel of the mean is zero in training.
        model_arguments: further keyword arguments of ``timm.create_model``.

    Shape:
        features (B, R, D), mask (B, R) bool, true for the first s x s regions, or 2 x s x s with
        ``mirror`` -> (B, d), of unit norm.

    Raises:
        ValueError: timm has no such model, the model has no such layer, or a number is out of
            range.

    Example:
        >>> encoder = LastLayersEncoder(
        ...     input_dim=256, dim=4, backbone="resnet10t", layer="layer3", cells=4
        ... )
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
        also: Sequence[str] = (),
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        if not 0 < power <= 1 or not 0 <= dropout < 1:
            raise ValueError(
                f"power {power}, dropout {dropout}: expected numbers in (0, 1] and [0, 1)"
            )
        super().__init__(input_dim, dim)
        self.config = BackboneConfig(backbone, model_arguments=model_arguments)
        self.layer, self.cells, self.views, self.power = layer, cells, 1 + mirror, power
        self.also = tuple(also)
        whole = self._backbone()
        self.layers = TailLayers(whole.network.requires_grad_(True), layer, self.also)
        channels = whole.network.num_features + sum(whole.layer_channels(self.also))
        self.standardize = nn.BatchNorm1d(channels, affine=False)
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(channels, dim)

    def _backbone(self) -> TimmBackbone:
        backbone = TimmBackbone(self.config)
        backbone.check_layers([self.layer, *self.also])
        return backbone

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        """Shape of the features; the layers behind them need all cells of a map."""
        return ("batch", self.views * self.cells**2, self.input_dim)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return normalize(
            self.projection(self.dropout(self.standardize(self.pooled(features, mask)))), dim=1
        )

    def pooled(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the mean (B, C) of the activations of all cells, before it is standardized."""
        features, mask = features.to(self.projection.weight), mask.to(self.projection.weight.device)
        maps = self._drawn_maps(features, mask) if self.training else self._maps(features, mask)
        parts = (
            [maps]
            if self.training or torch.compiler.is_exporting()
            else maps.split(EVAL_BATCH_SIZE)
        )
        return torch.cat(
            [
                torch.cat([a.mean(dim=(1, 2)) for a in self._activations(part)], dim=1)
                for part in parts
            ]
        )

    def activation_maps(self, regions: RegionBatch) -> RegionVectors:
        """Return the cells in the joint space before normalization; their mean, normalized, is the
        embedding."""
        cells = torch.cat(
            self._activations(self._maps(self.to_dtype(regions.features), regions.mask)), dim=3
        )
        side = math.isqrt(cells.shape[2])
        boxes = cell_boxes(side, side).to(cells)
        # Not len(cells), which would fix the batch size of an exported graph.
        boxes = torch.cat([boxes, mirrored(boxes)][: self.views]).expand(cells.shape[0], -1, -1)
        vectors = self.projection(
            self.standardize(cells.flatten(1, 2).transpose(1, 2)).transpose(1, 2)
        )
        return RegionVectors(vectors, boxes.new_ones(boxes.shape[:2], dtype=torch.bool), boxes)

    def _maps(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the stored maps (B, views, D, s, s)."""
        count = self.views * self.cells**2
        if not torch.compiler.is_exporting():
            self._check(features, mask, int(mask[:, :count].sum()) == len(mask) * count)
        maps: Tensor = (
            features[:, :count].transpose(1, 2).unflatten(2, (self.views, self.cells, self.cells))
        )
        return maps.transpose(1, 2)

    def _check(self, features: Tensor, mask: Tensor, valid: bool) -> None:
        count = self.views * self.cells**2
        if not valid or features.shape[1] < count or mask[:, count:].any():
            raise ValueError(
                f"features {tuple(features.shape)}, {int(mask.sum())} regions in all: expected "
                f"{count} cells of every image; extract features with Grid, stage "
                f"{self.layer}, of square images, set cells and mirror to the values of the "
                "features, and hide no cells but outside a RandomRectangle"
            )

    def _drawn_maps(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the cells of one view of each image (B, 1, D, h, w) that the mask shows, a
        rectangle of one size."""
        self._check(features, mask, valid=True)
        rows = torch.arange(len(features), device=features.device)
        view = torch.randint(self.views, (len(features),), device=features.device)
        count, side = self.views * self.cells**2, self.cells
        shown = mask[:, :count].unflatten(1, (self.views, side, side))[rows, view]
        heights, widths = shown.any(dim=2).sum(dim=1), shown.any(dim=1).sum(dim=1)
        height, width = int(heights[0]), int(widths[0])
        filled = (heights == height) & (widths == width) & (shown.sum(dim=(1, 2)) == height * width)
        self._check(features, mask, valid=height > 0 and bool(filled.all()))
        cells = features[:, :count].unflatten(1, (self.views, side, side))[rows, view][shown]
        maps: Tensor = cells.unflatten(0, (len(features), height, width)).movedim(3, 1).unsqueeze(1)
        return maps

    def _activations(self, maps: Tensor) -> list[Tensor]:
        """Return the activations (B, views, cells, channels) of each layer for maps (B, views, D,
        h, w)."""
        *others, last = self.layers(maps.flatten(0, 1))
        found = [*(self._resized(other, last) for other in others), last]
        raised = _SignedPower.apply if self.training else signed_power
        return [
            raised(layer.movedim(1, 3).float(), self.power)
            .flatten(1, 2)
            .unflatten(0, maps.shape[:2])
            for layer in found
        ]

    @staticmethod
    def _resized(maps: Tensor, like: Tensor) -> Tensor:
        size = like.shape[2:]
        return maps if maps.shape[2:] == size else adaptive_avg_pool2d(maps, (size[0], size[1]))

    def load_pretrained(self, directory: Path) -> None:
        """Load the weights that the extractor Grid keeps with the features in ``directory``."""
        backbone = self._backbone()
        load_feature_weights(backbone.network, directory, backbone.classifier_prefix)
        self.layers.load_state_dict(
            TailLayers(backbone.network, self.layer, self.also).state_dict()
        )
