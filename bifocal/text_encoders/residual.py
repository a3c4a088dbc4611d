"""Residual head over the text tower of a contrastive model."""

from torch import Tensor

from bifocal.layers import ResidualEncoder
from bifocal.text_encoders.base import VectorTextEncoder


class ResidualHead(ResidualEncoder, VectorTextEncoder):
    """A caption's vector plus a trained residual of it, l2-normalized: the identity before
    training.

    See ``bifocal.image_encoders.ResidualHead``.

    Args:
        input_dim: K, dimension of the tower's vector.
        dim: d, dimension of the embedding, equal to K; other dimensions cut the vector, or fill it
            with zeros.
        hidden: units of the hidden layer.
        dropout: probability, after the ReLU.

    Shape:
        values (B, K), lengths ignored -> (B, d).

    Example:
        >>> import torch
        >>> ResidualHead(input_dim=2, dim=2)(
        ...     torch.tensor([[0.0, 4.0]]), torch.ones(1, dtype=torch.int64)
        ... ).tolist()
        [[0.0, 1.0]]
    """

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        self.check_vectors(values)
        embeddings: Tensor = self.head(values)
        return embeddings
