"""Heads of the mean region of an image: an affine map, two layers, or a residual."""

from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.image_encoders.base import ImageEncoder, mean_region
from bifocal.layers import ResidualEncoder, two_layers
from bifocal.localization.base import RegionVectors
from bifocal.localization.per_region import PerRegionLocalizer


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
        self.projection = two_layers(input_dim, hidden, dim, dropout)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return normalize(self.projection(mean_region(features, mask)), dim=1)

    def localizer(self) -> PerRegionLocalizer:
        """Return the localizer of section 3.3: each region as an image of its own."""
        return PerRegionLocalizer()


class ResidualHead(ResidualEncoder, ImageEncoder):
    """Mean of the regions plus a trained residual of it, l2-normalized: the identity before
    training.

    Gao et al., "CLIP-Adapter", IJCV 2024, adds two trained layers to the vector of a frozen tower.
    Here the last layer starts at zero, and the weight of the residual is chosen on validation
    images, as the weight of fine-tuned parameters by Wortsman et al., "Robust fine-tuning of
    zero-shot models", CVPR 2022. The weight may be 0, so that a training cannot fall below the
    zero-shot model on these images.

    Args:
        input_dim: D, dimension of the tower's vector.
        dim: d, dimension of the embedding, equal to D; other dimensions cut the vector, or fill it
            with zeros.
        hidden: units of the hidden layer.
        dropout: probability, after the ReLU.

    Shape:
        features (B, R, D), mask (B, R) bool, true where there is a region -> (B, d), of unit norm.

    Example:
        >>> import torch
        >>> head = ResidualHead(input_dim=2, dim=2)
        >>> head(torch.tensor([[[3.0, 4.0]]]), torch.ones(1, 1, dtype=torch.bool)).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        embeddings: Tensor = self.head(mean_region(features, mask))
        return embeddings
