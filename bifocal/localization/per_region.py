"""Localizer for encoders without one: embed each region as an image of its own."""

from typing import Any

import torch

from bifocal.features import RegionBatch
from bifocal.localization.base import Localizer, RegionVectors, ServedScores


class PerRegionLocalizer(Localizer):
    """Region score: cosine between the text and an image with only this region.

    Wang, Li, Lazebnik, CVPR 2016, section 3.3, rank the proposals of an image for a phrase in this
    way. It works with encoders of stored regions that give one vector per image.

    Example:
        >>> from bifocal.image_encoders import LinearEncoder
        >>> regions = RegionBatch(
        ...     torch.rand(1, 4, 3), torch.ones(1, 4, dtype=torch.bool), torch.rand(1, 4, 4)
        ... )
        >>> PerRegionLocalizer()(LinearEncoder(3, 6), regions, torch.rand(1, 6)).scores.shape
        torch.Size([1, 4])
    """

    def encode(self, encoder: Any, regions: RegionBatch) -> RegionVectors:
        """Return the embedding of each region by itself; see ``Localizer``."""
        name = type(encoder).__name__
        if encoder.reads_pixels:
            raise ValueError(
                f"PerRegionLocalizer needs an encoder of stored regions, a {name} reads pixels"
            )
        if not encoder.single_vector:
            raise ValueError(
                f"PerRegionLocalizer needs one vector per image, a {name} gives several"
            )
        features = encoder.to_dtype(regions.features)
        single = features.flatten(0, 1).unsqueeze(1)
        vectors = encoder(
            single, torch.ones(single.shape[:2], dtype=torch.bool, device=single.device)
        )
        return RegionVectors(vectors.unflatten(0, features.shape[:2]), regions.mask, regions.boxes)

    def served(self) -> ServedScores:
        return ServedScores("dot_products", "single_regions")
