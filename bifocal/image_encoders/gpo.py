"""Generalized pooling of the regions."""

from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.image_encoders.base import ImageEncoder
from bifocal.layers.generalized_pooling import GeneralizedPooling
from bifocal.localization.per_region import PerRegionLocalizer


class GPOEncoder(ImageEncoder):
    """Affine map of each region, and pooling whose weights of the sorted values are learned, l2-normalized.

    VSE infinity: Chen et al., "Learning the best pooling strategy for visual semantic embedding", CVPR 2021, section 3.
    The second branch that the paper adds to its detector regions, a perceptron beside the affine map, is left out. The
    paper trains it with dropped regions: ``bifocal.training.augmentations.RegionDrop``.

    Args:
        input_dim: D, channels of a region's feature.
        dim: d, dimension of the embedding.

    Shape:
        features (B, R, D), mask (B, R) bool, true where there is a region -> (B, d), of unit norm.

    Example:
        >>> import torch
        >>> GPOEncoder(input_dim=3, dim=4)(torch.rand(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)).shape
        torch.Size([2, 4])
    """

    def __init__(self, input_dim: int = 2048, dim: int = 1024) -> None:
        super().__init__(input_dim, dim)
        self.projection = nn.Linear(input_dim, dim)
        self.pooling = GeneralizedPooling()

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return normalize(self.pooling(self.projection(features), mask), dim=1)

    def localizer(self) -> PerRegionLocalizer:
        """Return the localizer of encoders without one: each region as an image of its own."""
        return PerRegionLocalizer()
