"""Residual head over the image tower of a contrastive model."""

from torch import Tensor

from bifocal.image_encoders.base import ImageEncoder, mean_region
from bifocal.layers import ResidualEncoder


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
