"""Each region as an image of its own: how embeddings without a localization of theirs find phrases."""

import torch
from torch import Tensor, nn

from bifocal.backbones.trainable import reads_pixels
from bifocal.features import RegionBatch
from bifocal.localization.base import RegionScores, RegionVectors, as_numbers, region_scores


class PerRegionLocalizer:
    """Score of a region: the cosine of the text with the embedding of an image that shows this region alone.

    Wang, Li, Lazebnik, CVPR 2016, section 3.3, rank the proposals of an image for a phrase like that. For encoders of
    stored regions that give one vector for an image.
    """

    def see(self, encoder: nn.Module, regions: RegionBatch) -> RegionVectors:
        """See ``bifocal.localization.base.Localizer``."""
        if reads_pixels(encoder):
            raise ValueError(
                f"PerRegionLocalizer needs an encoder of stored regions, a {type(encoder).__name__} reads pixels"
            )
        features = as_numbers(encoder, regions.features)
        single = features.flatten(0, 1).unsqueeze(1)
        vectors = encoder(single, torch.ones(single.shape[:2], dtype=torch.bool, device=single.device))
        if vectors.ndim != 2:
            raise ValueError(
                f"PerRegionLocalizer needs one vector for an image, a {type(encoder).__name__} gives several"
            )
        return RegionVectors(vectors.unflatten(0, features.shape[:2]), regions.mask, regions.boxes)

    def heat(self, seen: RegionVectors, texts: Tensor) -> RegionScores:
        """See ``bifocal.localization.base.Localizer``."""
        return RegionScores(region_scores(seen.vectors, texts).masked_fill(~seen.mask, -torch.inf), seen.boxes)

    def __call__(self, encoder: nn.Module, regions: RegionBatch, texts: Tensor) -> RegionScores:
        """See ``bifocal.localization.base.Localizer``."""
        return self.heat(self.see(encoder, regions), texts)
