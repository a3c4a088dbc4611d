"""Heads of a caption's vector: an affine map, two layers, or a residual."""

from torch import Tensor, nn

from bifocal.layers import ResidualEncoder, two_layers
from bifocal.text_encoders.base import VectorTextEncoder


class BagOfWordsEncoder(VectorTextEncoder):
    """theta(t) = W't / |W't| of the l2-normalized tf-idf vector t; a caption without known terms
    stays zero.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 4.

    Args:
        input_dim: K, number of terms (46,881 in the paper).
        dim: d, dimension of the embedding.

    Shape:
        values (B, K), lengths ignored -> (B, d).

    Example:
        >>> import torch
        >>> BagOfWordsEncoder(input_dim=5, dim=4)(
        ...     torch.rand(2, 5), torch.ones(2, dtype=torch.int64)
        ... ).shape
        torch.Size([2, 4])
    """

    def __init__(self, input_dim: int = 46_881, dim: int = 2048) -> None:
        super().__init__(input_dim, dim)
        self.projection = nn.Linear(input_dim, dim, bias=False)


class LinearEncoder(VectorTextEncoder):
    """Affine map of a Fisher vector, a mean word vector or a bag of words, l2-normalized.

    This is the text branch of linear embeddings, see ``bifocal.image_encoders.LinearEncoder``. Over
    means of word vectors it is the baseline that ignores word order.

    Args:
        input_dim: K, dimension of the caption's vector (300 of mean word vectors).
        dim: d, dimension of the embedding.

    Shape:
        values (B, K), lengths ignored -> (B, d).

    Example:
        >>> import torch
        >>> LinearEncoder(input_dim=5, dim=4)(
        ...     torch.rand(2, 5), torch.ones(2, dtype=torch.int64)
        ... ).shape
        torch.Size([2, 4])
    """

    def __init__(self, input_dim: int = 300, dim: int = 512) -> None:
        super().__init__(input_dim, dim)
        self.projection = nn.Linear(input_dim, dim)


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
