"""Linear map of a caption's vector."""

from torch import nn

from bifocal.text_encoders.base import VectorTextEncoder


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
