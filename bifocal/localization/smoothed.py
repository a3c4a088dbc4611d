"""Localizer that smooths the activations of the regions, and prefers the center of the image."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bifocal.features import RegionBatch
from bifocal.localization.base import (
    Localizer,
    RegionScores,
    RegionVectors,
    ServedScores,
    masked,
    region_scores,
    require,
)

EPSILON = 1e-6
"""Smallest standard deviation that scores are divided by."""


class SmoothedActivations(Localizer):
    """Class activation map of a text, smoothed, with a prior of the center.

    Zhou et al., "Learning deep features for discriminative localization", CVPR 2016, eq. (2): the
    score of a region is its share of the image's dot product with the text, before any
    normalization. Each score becomes the mean of all scores of the image, weighted by a Gaussian of
    the distance between centers, so that one cell with a high score counts less than a group of
    them. The prior is the squared distance from the center of the image, which Judd et al.,
    "Learning to predict where humans look", ICCV 2009, section 3.1, use as a feature.

    Args:
        sigma: standard deviation of the Gaussian, relative to the sides of the image; 0 for no
            smoothing.
        center: weight of the prior, in standard deviations of the image's scores at the middle of
            an edge.

    Raises:
        ValueError: a value is negative.

    Example:
        >>> from bifocal.image_encoders import LinearEncoder
        >>> regions = RegionBatch(
        ...     torch.rand(1, 4, 3), torch.ones(1, 4, dtype=torch.bool), torch.rand(1, 4, 4)
        ... )
        >>> SmoothedActivations()(LinearEncoder(3, 6), regions, torch.rand(1, 6)).scores.shape
        torch.Size([1, 4])
    """

    def __init__(self, sigma: float = 0.07, center: float = 0.5) -> None:
        if sigma < 0 or center < 0:
            raise ValueError(f"sigma is {sigma} and center {center}: expected 0 or more")
        self.sigma, self.center = sigma, center

    def encode(self, encoder: Any, regions: RegionBatch) -> RegionVectors:
        """Return the regions in the joint space, before normalization; see ``Localizer``."""
        require(encoder, "activation_maps", self, "LinearEncoder, SMILEEncoder or BEANEncoder")
        maps: RegionVectors = encoder.activation_maps(regions)
        return maps

    def served(self) -> ServedScores:
        return ServedScores(
            "smoothed_activations", "regions", {"sigma": self.sigma, "center": self.center}
        )

    def score(
        self, vectors: RegionVectors, texts: Tensor, words: Sequence[Tensor | None] | None = None
    ) -> RegionScores:
        """Return the smoothed scores of each image's text; see ``Localizer``."""
        scores = region_scores(vectors.vectors, texts)
        centers = ((vectors.boxes[..., :2] + vectors.boxes[..., 2:]) / 2).to(scores)
        # The boxes of padding may be NaN, which a weight of 0 would keep.
        centers = centers.masked_fill(~vectors.mask.unsqueeze(2), 0.5)
        smoothed = smooth(scores, centers, vectors.mask, self.sigma)
        prior = (2 * centers - 1).square().sum(dim=2)
        return masked(standardize(smoothed, vectors.mask) - self.center * prior, vectors)


def smooth(scores: Tensor, centers: Tensor, mask: Tensor, sigma: float) -> Tensor:
    """Return the mean of an image's scores, weighted by a Gaussian of the distance from each
    center.

    Scores and mask are (N, R), centers (N, R, 2) relative to the image; a ``sigma`` of 0 returns
    the scores.
    """
    if not sigma:
        return scores
    distances = (centers.unsqueeze(2) - centers.unsqueeze(1)).square().sum(dim=3)
    weights = (-distances / (2 * sigma**2)).exp() * mask.unsqueeze(1)
    # A region of padding may be far from all others; its own weight keeps the sum above zero.
    weights = weights + torch.diag_embed((~mask).to(weights))
    return torch.einsum("nrs,ns->nr", weights, scores) / weights.sum(dim=2)


def standardize(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the scores (N, R) of each image with mean 0 and standard deviation 1 over its
    regions."""
    count = mask.sum(dim=1, keepdim=True)
    centered = scores - (scores * mask).sum(dim=1, keepdim=True) / count
    deviation = ((centered.square() * mask).sum(dim=1, keepdim=True) / count).sqrt()
    return centered / deviation.clamp_min(EPSILON)
