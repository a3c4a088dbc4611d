"""Generalized pooling of the words."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.layers.generalized_pooling import GeneralizedPooling
from bifocal.text_encoders.base import TextEncoder
from bifocal.text_encoders.recurrent.sequences import check_sequences


class GPOEncoder(TextEncoder):
    """Affine map of each word vector, and pooling whose weights of the sorted values are learned, l2-normalized.

    Chen et al., CVPR 2021, as ``bifocal.image_encoders.GPOEncoder``. The paper pools the states of a BERT or of a
    recurrent network. Here the word vectors are pooled, so word order is ignored.

    Args:
        input_dim: K, dimension of a word vector.
        dim: d, dimension of the embedding.

    Shape:
        values (B, T, K), lengths (B,) in [1, T] -> (B, d).

    Example:
        >>> GPOEncoder(input_dim=5, dim=4)(torch.rand(2, 3, 5), torch.tensor([3, 1])).shape
        torch.Size([2, 4])
    """

    def __init__(self, input_dim: int = 300, dim: int = 1024) -> None:
        super().__init__(input_dim, dim)
        self.projection = nn.Linear(input_dim, dim)
        self.pooling = GeneralizedPooling()

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            check_sequences(values, lengths, self.input_dim)
        inside = torch.arange(values.shape[1], device=values.device) < lengths[:, None]
        return normalize(self.pooling(self.projection(values), inside), dim=1)
