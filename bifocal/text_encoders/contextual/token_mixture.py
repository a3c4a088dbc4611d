"""Words and sentence from the layers of contextual vectors."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.layers import mapping
from bifocal.text_encoders.base import LayersTextEncoder
from bifocal.text_encoders.contextual.elmo_mixture import ScalarMixture


class TokenMixtureEncoder(LayersTextEncoder):
    """Two mappings of a mixture of layers: of every word, and of the mean of the words as the
    sentence.

    The mixture is eq. (1) of Peters et al., NAACL 2018. Words and sentence are the input of
    ``GroundingModel``, as in ``ElmoMixtureEncoder``, for vectors that are not split into forward
    and backward halves, as a transformer's.

    Args:
        input_dim: K, dimension of a layer.
        dim: d, dimension of the embedding.
        layers: L, number of layers in the text.

    Shape:
        values (B, L, T, K), lengths (B,) in [1, T] -> (B, d).

    Example:
        >>> encoder = TokenMixtureEncoder(input_dim=6, dim=4, layers=2)
        >>> encoder(torch.rand(2, 2, 5, 6), torch.tensor([5, 2])).shape
        torch.Size([2, 4])
        >>> encoder.encode_words(torch.rand(2, 2, 5, 6), torch.tensor([5, 2])).shape
        torch.Size([2, 5, 4])
    """

    def __init__(self, input_dim: int = 768, dim: int = 1024, layers: int = 1) -> None:
        super().__init__(input_dim, dim, layers)
        self.mixture = ScalarMixture(layers)
        self.words, self.sentence = (mapping(input_dim, dim, count=2, slope=0.25) for _ in range(2))

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        mixed, inside = self._mix(values, lengths)
        mean = (mixed * inside).sum(dim=1) / lengths[:, None]
        return normalize(self.sentence(mean), dim=1)

    def encode_words(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Return unit word embeddings (B, T, d); zero after the end of a sentence."""
        mixed, inside = self._mix(values, lengths)
        return normalize(self.words(mixed), dim=2) * inside

    def _mix(self, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mixture (B, T, K), and whether each token is inside its sentence (B, T, 1)."""
        self.check_layers(values)
        inside = torch.arange(values.shape[2], device=values.device) < lengths[:, None]
        return self.mixture(values.transpose(0, 1)), inside[:, :, None]
