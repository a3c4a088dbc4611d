"""Linear map of the mean region."""

from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.image_encoders.base import ImageEncoder, mean_region
from bifocal.localization.base import RegionVectors


class LinearEncoder(ImageEncoder):
    """Mean of the regions through one affine map, l2-normalized.

    This is the image branch of linear embeddings: WSABIE (Weston et al., IJCAI 2011), "Linear" of
    Wang et al., CVPR 2016, table 1, and canonical correlation analysis
    (``bifocal.training.initialization.cca``).

    Args:
        input_dim: D, channels of a region's feature.
        dim: d, dimension of the embedding.
        standardize: standardize each channel of the mean before the map, as batch norm without
            weights does.
        dropout: probability with which a channel of the mean is zero in training.

    Shape:
        features (B, R, D), mask (B, R) bool, true where there is a region -> (B, d), of unit norm.

    Example:
        >>> import torch
        >>> LinearEncoder(input_dim=3, dim=4)(
        ...     torch.rand(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)
        ... ).shape
        torch.Size([2, 4])
    """

    def __init__(
        self, input_dim: int = 4096, dim: int = 512, standardize: bool = False, dropout: float = 0.0
    ) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}: expected a number in [0, 1)")
        super().__init__(input_dim, dim)
        self.standardize = nn.BatchNorm1d(input_dim, affine=False) if standardize else None
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(input_dim, dim)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        mean = self.pooled(features, mask)
        mean = mean if self.standardize is None else self.standardize(mean)
        return normalize(self.projection(self.dropout(mean)), dim=1)

    def pooled(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the input (B, D) of the affine map."""
        return mean_region(features, mask)

    def activation_maps(self, regions: RegionBatch) -> RegionVectors:
        """Return the regions in the joint space before normalization; their mean, normalized, is
        the embedding."""
        features = self.to_dtype(regions.features)
        if self.standardize is not None:
            features = self.standardize(features.transpose(1, 2)).transpose(1, 2)
        return RegionVectors(self.projection(features), regions.mask, regions.boxes)
