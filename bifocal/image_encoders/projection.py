"""Two fully connected layers over a global image feature."""

from torch import Tensor
from torch.nn.functional import normalize

from bifocal.image_encoders.base import ImageEncoder, mean_region
from bifocal.layers import two_layers
from bifocal.localization.per_region import PerRegionLocalizer


class ProjectionEncoder(ImageEncoder):
    """Two fully connected layers over the mean region.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016,
    figure 1: ReLU between the layers, batch normalization after the last, l2.

    Args:
        input_dim: D, channels of the feature (4,096 of VGG-19 in the paper).
        dim: d, dimension of the embedding.
        hidden: units of the first layer.
        dropout: probability, after the ReLU.

    Shape:
        features (B, R, D), mask (B, R) bool, true where there is a region -> (B, d), of unit norm.

    Example:
        >>> import torch
        >>> encoder = ProjectionEncoder(input_dim=3, dim=4, hidden=8)
        >>> encoder(torch.rand(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)).shape
        torch.Size([2, 4])
    """

    def __init__(
        self, input_dim: int = 4096, dim: int = 512, hidden: int = 2048, dropout: float = 0.5
    ) -> None:
        super().__init__(input_dim, dim)
        self.layers = two_layers(input_dim, hidden, dim, dropout)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return normalize(self.layers(mean_region(features, mask)), dim=1)

    def localizer(self) -> PerRegionLocalizer:
        """Return the localizer of section 3.3: each region as an image of its own."""
        return PerRegionLocalizer()
