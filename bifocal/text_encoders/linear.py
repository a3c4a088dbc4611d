"""A linear map of a caption's vector: what linear methods see of a text."""

from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.text_encoders.base import TextEncoder
from bifocal.text_encoders.vectors import check_vectors


class LinearEncoder(TextEncoder):
    """One affine map of a Fisher vector, a mean of word vectors or a bag of words, l2-normalised.

    The text side of linear embeddings, see ``bifocal.image_encoders.LinearEncoder``; over means of word vectors, the
    baseline that knows no order.

    Args:
        input_dim: K (300 of mean word vectors). dim: d.

    Shape:
        values (B, K), lengths unused -> (B, d).
    """

    def __init__(self, input_dim: int = 300, dim: int = 512) -> None:
        super().__init__(input_dim, dim)
        self.projection = nn.Linear(input_dim, dim)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        check_vectors(values, self.input_dim)
        return normalize(self.projection(values), dim=1)
