"""Text encoder of multi-level grounding: words and sentence from ELMo's layers."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.layers import mapping
from bifocal.text_encoders.base import LayersTextEncoder, last_true_step


class ScalarMixture(nn.Module):
    """Weighted mean of layers (L, ...): gamma times the mean by softmax weights. Peters et al.,
    NAACL 2018, eq. (1)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        mixed: Tensor = self.gamma * torch.tensordot(
            torch.softmax(self.weights, dim=0), layers, dims=1
        )
        return mixed


class ElmoMixtureEncoder(LayersTextEncoder):
    """Embeddings of a sentence and of its words from ELMo's layers.

    Akbari et al., "Multi-level multimodal common semantic space", CVPR 2019, section 3.1: a mixture
    of the three layers per word, and of the last outputs of the two bidirectional LSTM layers per
    sentence, each followed by two fully connected layers of d.

    Args:
        input_dim: K, both directions of a layer.
        dim: d, dimension of the embedding.
        layers: L, number of contextual layers; the first is the token's own vector.
        slope: alpha of the leaky ReLU, section 4.2.
        fully_connected: number of fully connected layers; 1 is a linear mapping, the ablation NLT
            of table 3.

    Shape:
        values (B, L, T, K), lengths (B,) in [1, T] -> (B, d).

    Example:
        >>> encoder = ElmoMixtureEncoder(input_dim=6, dim=4)
        >>> encoder(torch.rand(2, 3, 5, 6), torch.tensor([5, 2])).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        input_dim: int = 1024,
        dim: int = 1024,
        layers: int = 3,
        slope: float = 0.25,
        fully_connected: int = 2,
    ) -> None:
        super().__init__(input_dim, dim, layers)
        self.word_mixture = ScalarMixture(layers)
        self.sentence_mixture = ScalarMixture(layers - 1)
        self.word_layers = mapping(input_dim, dim, fully_connected, slope)
        self.sentence_layers = mapping(input_dim, dim, fully_connected, slope)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        self.check_layers(values)
        half = self.input_dim // 2
        last = [
            torch.cat([last_true_step(layer[..., :half], lengths), layer[:, 0, half:]], dim=1)
            for layer in values.unbind(dim=1)[1:]
        ]
        return normalize(self.sentence_layers(self.sentence_mixture(torch.stack(last))), dim=1)

    def encode_words(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Return unit word embeddings (B, T, d); zero after the end of a sentence."""
        self.check_layers(values)
        embeddings = normalize(self.word_layers(self.word_mixture(values.transpose(0, 1))), dim=2)
        inside = torch.arange(values.shape[2], device=values.device) < lengths[:, None]
        return embeddings * inside[:, :, None]
