"""The textual side of multi-level grounding: words and sentence from ELMo's layers."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.text_encoders.base import TextEncoder
from bifocal.text_encoders.sequences import last_true_step


class ScalarMixture(nn.Module):
    """gamma times the mean of layers by softmax weights: (L, ...) -> (...). Peters et al., NAACL 2018, eq. (1)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        mixed: Tensor = self.gamma * torch.tensordot(torch.softmax(self.weights, dim=0), layers, dims=1)
        return mixed


class ElmoMixtureEncoder(TextEncoder):
    """A sentence's embedding from the last outputs of ELMo's LSTMs in both directions; and those of its words.

    Akbari et al., "Multi-level multimodal common semantic space", CVPR 2019, section 3.1: a mixture of the three layers
    per word, of the two LSTM layers per sentence, each followed by two fully connected layers of d.

    Args:
        input_dim: K, both directions of a layer. dim: d.
        layers: L, of the contextual vectors, the token's own being the first.
        slope: of the leaky ReLU between the layers, for negative values (the paper does not say; 0.2 is TensorFlow's).

    Shape:
        values (B, L, T, K), lengths (B,) in [1, T] -> (B, d).
    """

    def __init__(self, input_dim: int = 1024, dim: int = 1024, layers: int = 3, slope: float = 0.2) -> None:
        super().__init__(input_dim, dim)
        self.layers = layers
        self.word_mixture = ScalarMixture(layers)
        self.sentence_mixture = ScalarMixture(layers - 1)
        self.word_layers = _two_layers(input_dim, dim, slope)
        self.sentence_layers = _two_layers(input_dim, dim, slope)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        self._check(values)
        half = self.input_dim // 2
        last = [
            torch.cat([last_true_step(layer[..., :half], lengths), layer[:, 0, half:]], dim=1)
            for layer in values.unbind(dim=1)[1:]
        ]
        return normalize(self.sentence_layers(self.sentence_mixture(torch.stack(last))), dim=1)

    def encode_words(self, values: Tensor, lengths: Tensor) -> Tensor:
        """The words' embeddings (B, T, d), of unit norm; zero where the sentence has ended."""
        self._check(values)
        embeddings = normalize(self.word_layers(self.word_mixture(values.transpose(0, 1))), dim=2)
        inside = torch.arange(values.shape[2], device=values.device) < lengths[:, None]
        return embeddings * inside[:, :, None]

    def _check(self, values: Tensor) -> None:
        if values.ndim != 4 or values.shape[1] != self.layers or values.shape[3] != self.input_dim:
            raise ValueError(
                f"values {tuple(values.shape)}, expected (B, {self.layers}, T, {self.input_dim}): this text encoder "
                "reads contextual vectors; vectorize with ElmoLayers"
            )


def _two_layers(input_dim: int, dim: int, slope: float) -> nn.Sequential:
    last = nn.Linear(dim, dim)
    # As in MultiLevelEncoder: where all cosines of a sentence fall below zero, it attends to nothing and never learns.
    nn.init.constant_(last.bias, 4 * dim**-0.5)
    return nn.Sequential(nn.Linear(input_dim, dim), nn.LeakyReLU(slope), last)
