"""Trainable mixture of contextual layers before a sequence encoder."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from bifocal.text_encoders.base import LayersTextEncoder, TextEncoder
from bifocal.text_encoders.contextual.elmo_mixture import ScalarMixture
from bifocal.text_encoders.recurrent.rnn import GRUEncoder


class LayerMixtureEncoder(LayersTextEncoder):
    """Weighted mean of each token's layers, then an encoder of token vectors, such as SRU.

    Peters et al., NAACL 2018, eq. (1), for ELMo; Devlin et al., NAACL 2019, section 5.3, for the
    layers of BERT.

    Args:
        input_dim: K, dimension of a layer.
        dim: d, dimension of the embedding.
        layers: L, number of layers in the text.
        encoder: encoder of token vectors (B, T, K); None for a ``GRUEncoder``.

    Shape:
        values (B, L, T, K), lengths (B,) in [1, T] -> (B, d).

    Example:
        >>> import torch
        >>> encoder = LayerMixtureEncoder(input_dim=6, dim=4, layers=2)
        >>> encoder(torch.rand(2, 2, 5, 6), torch.tensor([5, 2])).shape
        torch.Size([2, 4])
    """

    parts: ClassVar[Mapping[str, str]] = {"encoder": "bifocal.text_encoders"}

    def __init__(
        self,
        input_dim: int = 768,
        dim: int = 1024,
        layers: int = 1,
        encoder: TextEncoder | None = None,
    ) -> None:
        super().__init__(input_dim, dim, layers)
        self.mixture = ScalarMixture(layers)
        self.encoder = GRUEncoder(input_dim, dim) if encoder is None else encoder

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        self.check_layers(values)
        embeddings: Tensor = self.encoder(self.mixture(values.transpose(0, 1)), lengths)
        return embeddings
