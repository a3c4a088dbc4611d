"""Text encoders of contextual vectors, of multi-level grounding and its ablations."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.layers import mapping
from bifocal.text_encoders.base import LayersTextEncoder, last_true_step, reverse


def inside(values: Tensor, lengths: Tensor) -> Tensor:
    """Return whether each token of (B, layers, T, K) is inside its sentence, (B, T, 1)."""
    return (torch.arange(values.shape[2], device=values.device) < lengths[:, None])[:, :, None]


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
        return embeddings * inside(values, lengths)


class ElmoBiLSTMEncoder(LayersTextEncoder):
    """Outputs of a trainable bidirectional LSTM over ELMo's token vectors, mapped to words and to a
    sentence.

    Akbari et al., "Multi-level multimodal common semantic space", CVPR 2019, row 5 of table 3: a
    trainable LSTM takes the place of ELMo's pretrained ones. A sentence is the last outputs of both
    directions. Two fully connected layers follow, as the table marks and as the authors' code has
    them; the paper's text says that none follow. The authors' code also adds the token's own vector
    to a word by a learned weight; here a word is only the output.

    Args:
        input_dim: K, both directions of a layer; the first layer holds the token's vector of K / 2
            numbers twice.
        dim: d, dimension of the embedding.
        layers: L, number of ELMo's layers in the text; the contextual ones are not used.
        units: of the LSTM per direction; the paper gives none, the authors' code has 512.
        slope: alpha of the leaky ReLU, section 4.2.
        fully_connected: number of fully connected layers; 1 is a linear mapping.

    Shape:
        values (B, L, T, K), lengths (B,) in [1, T] -> (B, d).

    Example:
        >>> encoder = ElmoBiLSTMEncoder(input_dim=6, dim=4, units=5)
        >>> encoder(torch.rand(2, 3, 5, 6), torch.tensor([5, 2])).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        input_dim: int = 1024,
        dim: int = 1024,
        layers: int = 3,
        units: int = 512,
        slope: float = 0.25,
        fully_connected: int = 2,
    ) -> None:
        super().__init__(input_dim, dim, layers)
        self.forwards, self.backwards = (
            nn.LSTM(input_dim // 2, units, batch_first=True) for _ in range(2)
        )
        self.word_layers, self.sentence_layers = (
            mapping(2 * units, dim, fully_connected, slope) for _ in range(2)
        )

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        ahead, back = self._outputs(values, lengths)
        last = torch.cat([last_true_step(ahead, lengths), back[:, 0]], dim=1)
        return normalize(self.sentence_layers(last), dim=1)

    def encode_words(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Return unit word embeddings (B, T, d); zero after the end of a sentence."""
        embeddings = normalize(
            self.word_layers(torch.cat(self._outputs(values, lengths), dim=2)), dim=2
        )
        return embeddings * inside(values, lengths)

    def _outputs(self, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, T, units) of both directions; outputs after the end of a sentence
        are undefined."""
        self.check_layers(values)
        tokens = values[:, 0, :, : self.input_dim // 2]
        ahead, _ = self.forwards(tokens)
        back, _ = self.backwards(reverse(tokens, lengths))
        return ahead, reverse(back, lengths)


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
        mean = (self._mix(values) * inside(values, lengths)).sum(dim=1) / lengths[:, None]
        return normalize(self.sentence(mean), dim=1)

    def encode_words(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Return unit word embeddings (B, T, d); zero after the end of a sentence."""
        return normalize(self.words(self._mix(values)), dim=2) * inside(values, lengths)

    def _mix(self, values: Tensor) -> Tensor:
        """Return the mixture (B, T, K)."""
        self.check_layers(values)
        mixed: Tensor = self.mixture(values.transpose(0, 1))
        return mixed
