"""Two fully connected layers over a caption's vector."""

from bifocal.layers import two_layers
from bifocal.text_encoders.base import VectorTextEncoder


class ProjectionEncoder(VectorTextEncoder):
    """Two fully connected layers over a Fisher vector, a mean of word vectors or a bag of words.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016,
    figure 1: ReLU between the layers, batch normalization after the last, l2.

    Args:
        input_dim: K, dimension of the caption's vector (6,000 of the Fisher vectors after PCA).
        dim: d, dimension of the embedding.
        hidden: units of the first layer.
        dropout: probability, after the ReLU.

    Shape:
        values (B, K), lengths ignored -> (B, d).

    Example:
        >>> import torch
        >>> encoder = ProjectionEncoder(input_dim=5, dim=4, hidden=8)
        >>> encoder(torch.rand(2, 5), torch.ones(2, dtype=torch.int64)).shape
        torch.Size([2, 4])
    """

    def __init__(
        self, input_dim: int = 6000, dim: int = 512, hidden: int = 2048, dropout: float = 0.5
    ) -> None:
        super().__init__(input_dim, dim)
        self.projection = two_layers(input_dim, hidden, dim, dropout)
