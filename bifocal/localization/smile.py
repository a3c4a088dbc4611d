"""Localizer of SMILE: scores of the regions before they are pooled."""

from typing import Any

from bifocal.features import RegionBatch
from bifocal.localization.base import Localizer, RegionVectors, ServedScores, require


class SMILERegions(Localizer):
    """Dot product of each region with the text: Engilberge's thesis, 2020, eq. (4.3).

    Args:
        attended: score A o G, the region's share of the image's embedding, instead of G.

    Example:
        >>> import torch
        >>> from bifocal.image_encoders import SMILEEncoder
        >>> regions = RegionBatch(
        ...     torch.rand(1, 4, 3), torch.ones(1, 4, dtype=torch.bool), torch.rand(1, 4, 4)
        ... )
        >>> SMILERegions()(SMILEEncoder(3, 6), regions, torch.rand(1, 6)).scores.shape
        torch.Size([1, 4])
    """

    def __init__(self, attended: bool = False) -> None:
        self.attended = attended

    def encode(self, encoder: Any, regions: RegionBatch) -> RegionVectors:
        """Return G, or A o G; see ``Localizer``."""
        require(encoder, "region_embeddings", self, "SMILEEncoder")
        vectors = encoder.region_embeddings(encoder.to_dtype(regions.features))
        if self.attended:
            vectors = encoder.weights(vectors, regions.mask) * vectors
        return RegionVectors(vectors, regions.mask, regions.boxes)

    def served(self) -> ServedScores:
        return ServedScores("dot_products", "regions")
