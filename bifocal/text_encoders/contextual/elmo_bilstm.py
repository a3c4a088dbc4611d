"""Trainable bidirectional LSTM over ELMo's token vectors, an ablation of multi-level grounding."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.layers import mapping
from bifocal.text_encoders.base import LayersTextEncoder, last_true_step, reverse


class ElmoBiLSTMEncoder(LayersTextEncoder):
    """Outputs of a trainable bidirectional LSTM over ELMo's token vectors, mapped to words and to a
    sentence.

    Akbari et al., "Multi-level multimodal common semantic space", CVPR 2019, row 5 of table 3: a
    trainable LSTM takes the place of ELMo's pretrained ones. A sentence is the last outputs of both
    directions. Two fully connected layers follow, as the table marks and as the authors' code has
    them; the paper's text says that none follow. The authors' code also adds the token's own vector
    to a word by a learned weight; here a word is the output alone.

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
        inside = torch.arange(values.shape[2], device=values.device) < lengths[:, None]
        return embeddings * inside[:, :, None]

    def _outputs(self, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, T, units) of both directions; outputs after the end of a sentence
        are undefined."""
        self.check_layers(values)
        tokens = values[:, 0, :, : self.input_dim // 2]
        ahead, _ = self.forwards(tokens)
        back, _ = self.backwards(reverse(tokens, lengths))
        return ahead, reverse(back, lengths)
