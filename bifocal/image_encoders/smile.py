"""SMILE: distributed self-attention over regions."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization.base import RegionVectors
from bifocal.localization.smile import SMILERegions

Ablation = Literal["mean", "scalar", "no_convolution", "no_softmax"]


class SMILEEncoder(ImageEncoder):
    """Distributed self-attention over regions or grid cells.

    Engilberge, "Deep inside visual-semantic embeddings", 2020, eq. (3.5)-(3.8): a 1 x 1 convolution
    to ``dim`` channels, l2-normalized regions G, one weight per (channel, region), x = (A o G) 1.
    Because the score is a cosine, x is l2-normalized at the end.

    Args:
        input_dim: D, channels of a region's feature.
        dim: d, dimension of the embedding.
        ablation: of tables 3.4-3.5: "mean" averages G, "scalar" (1-Att) has one weight per region,
            "no_convolution" takes the softmax of G itself, "no_softmax" uses W G as weights.

    Shape:
        features (B, R, D), mask (B, R) bool, true where there is a region -> (B, d), of unit norm.

    Example:
        >>> encoder = SMILEEncoder(input_dim=3, dim=4)
        >>> encoder(torch.rand(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)).shape
        torch.Size([2, 4])
    """

    def __init__(
        self, input_dim: int = 2048, dim: int = 2400, ablation: Ablation | None = None
    ) -> None:
        super().__init__(input_dim, dim)
        self.convolution = nn.Linear(input_dim, dim, bias=False)
        self.softmax = ablation != "no_softmax"
        self.attention: nn.Linear | None = None
        if ablation in (None, "no_softmax"):
            self.attention = nn.Linear(dim, dim, bias=False)
        elif ablation == "scalar":
            self.attention = nn.Linear(dim, 1, bias=False)
        elif ablation not in ("mean", "no_convolution"):
            raise ValueError(
                f"no ablation {ablation!r}; SMILEEncoder has mean, scalar, no_convolution, "
                "no_softmax"
            )
        self.uniform = ablation == "mean"

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        regions = self.region_embeddings(features)
        return normalize((self.weights(regions, mask) * regions).sum(dim=1), dim=1)

    def region_embeddings(self, features: Tensor) -> Tensor:
        """Return G of eq. (3.6), (B, R, d): the regions in the joint space, of unit norm."""
        return normalize(self.convolution(features), dim=2)

    def weights(self, regions: Tensor, mask: Tensor) -> Tensor:
        """Return A of eq. (3.8), (B, R, d) or (B, R, 1); zero where ``mask`` is false."""
        present = mask.unsqueeze(2)
        if self.uniform:
            return present / present.sum(dim=1, keepdim=True).clamp(min=1)
        logits = regions if self.attention is None else self.attention(regions)
        if not self.softmax:
            return logits * present
        return logits.masked_fill(~present, torch.finfo(logits.dtype).min).softmax(dim=1) * present

    def localizer(self) -> SMILERegions:
        """Return the localizer of the thesis, eq. (4.3)."""
        return SMILERegions()

    def activation_maps(self, regions: RegionBatch) -> RegionVectors:
        """Return the regions in the joint space before normalization, for ``BEANHeatmap``."""
        maps = self.convolution(self.to_dtype(regions.features))
        return RegionVectors(maps, regions.mask, regions.boxes)
