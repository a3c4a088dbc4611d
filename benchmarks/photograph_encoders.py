"""Image encoders of single rows of the leaderboard on photographs: parts of the papers over its
stored cells."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.image_encoders.base import ImageEncoder, max_plus_min
from bifocal.image_encoders.last_layers import LastLayersEncoder
from bifocal.image_encoders.multi_level import MultiLevelEncoder
from bifocal.layers import mapping


class StoredRMAC(ImageEncoder):
    """R-MAC from the stored maxima of its regions: normalize, whiten, normalize, sum, normalize.

    Gordo and Larlus, CVPR 2017, section 3. The whitening starts from random weights.

    Shape:
        features (B, n, D), mask (B, n) bool -> (B, d), of unit norm.
    """

    def __init__(self, input_dim: int = 2048, dim: int = 256) -> None:
        super().__init__(input_dim, dim)
        self.whitening = nn.Linear(input_dim, dim)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        regions = normalize(self.whitening(normalize(features, dim=2)), dim=2)
        return normalize((regions * mask.unsqueeze(2)).sum(dim=1), dim=1)


class HypercolumnLevels(MultiLevelEncoder):
    """Multi-level visual mapping whose levels are consecutive channels of stored hypercolumns.

    Args:
        channels: of each level, in the order of the hypercolumns.

    Shape:
        features (B, N, sum of channels), mask (B, N) bool -> (B, L, N, d), of unit norm.
    """

    def __init__(
        self,
        input_dim: int = 2960,
        dim: int = 128,
        channels: tuple[int, ...] = (120, 208, 352, 2280),
        slope: float = 0.25,
        convolutions: int = 3,
    ) -> None:
        if sum(channels) != input_dim:
            raise ValueError(f"channels {channels} have the sum {sum(channels)}, not {input_dim}")
        super().__init__(input_dim, dim, levels=len(channels), slope=slope)
        self.channels = tuple(channels)
        self.levels = nn.ModuleList(mapping(width, dim, convolutions, slope) for width in channels)

    def level_cells(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the cells (B, L, N, d) in the joint space."""
        parts = zip(self.levels, features.split(self.channels, dim=2), strict=True)
        cells = torch.stack([level(part) for level, part in parts], dim=1)
        return normalize(cells, dim=3) * mask[:, None, :, None]


class LastLayersBEAN(LastLayersEncoder):
    """BEAN's pooling over the trained last layers of a backbone.

    Engilberge et al., CVPR 2018, eq. (1) to (3): an adaptation of each cell to ``maps`` concepts,
    the maximum plus the minimum of each, an affine map.

    Shape:
        features (B, s x s, D), mask (B, s x s) bool -> (B, d), of unit norm.
    """

    def __init__(
        self,
        input_dim: int = 208,
        dim: int = 256,
        maps: int = 512,
        backbone: str = "tf_efficientnet_lite2.in1k",
        layer: str = "blocks.5",
        cells: int = 9,
        dropout: float = 0.5,
        model_arguments: dict[str, object] | None = None,
    ) -> None:
        super().__init__(
            input_dim,
            dim,
            backbone,
            layer,
            cells,
            mirror=False,
            dropout=dropout,
            model_arguments=model_arguments,
        )
        self.adaptation = nn.Linear(self.projection.in_features, maps, bias=False)
        self.projection = nn.Linear(maps, dim)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        maps = self._maps(features.to(self.projection.weight), mask)
        (cells,) = self._activations(maps)
        concepts = self.adaptation(cells.flatten(1, 2))
        present = concepts.new_ones(concepts.shape[:2], dtype=torch.bool)
        return normalize(self.projection(self.dropout(max_plus_min(concepts, present, 1))), dim=1)
