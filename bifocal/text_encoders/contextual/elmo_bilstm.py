"""Trainable bidirectional LSTM over ELMo's token vectors, an ablation of multi-level grounding."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.text_encoders.base import LayersTextEncoder
from bifocal.text_encoders.recurrent.sequences import last_true_step, reverse


class ElmoBiLSTMEncoder(LayersTextEncoder):
    """Outputs of a trainable bidirectional LSTM over ELMo's token vectors, as words and as sentence.

    Akbari et al., "Multi-level multimodal common semantic space", CVPR 2019, row 5 of table 3: ELMo's pretrained LSTMs
    are replaced by a trainable one, whose outputs go to the attention without further layers. A sentence is the last
    outputs of both directions. The paper does not give the size of the LSTM; here a direction has d / 2 units.

    Args:
        input_dim: K, both directions of a layer; the first layer holds the token's vector of K / 2 numbers twice.
        dim: d, dimension of the embedding; even.
        layers: L, number of ELMo's layers in the text; the contextual ones are not used.

    Shape:
        values (B, L, T, K), lengths (B,) in [1, T] -> (B, d).

    Raises:
        ValueError: ``dim`` is odd.

    Example:
        >>> encoder = ElmoBiLSTMEncoder(input_dim=6, dim=4)
        >>> encoder(torch.rand(2, 3, 5, 6), torch.tensor([5, 2])).shape
        torch.Size([2, 4])
    """

    def __init__(self, input_dim: int = 1024, dim: int = 1024, layers: int = 3) -> None:
        super().__init__(input_dim, dim, layers)
        if dim % 2:
            raise ValueError(f"dim is {dim}: expected an even number, half of it for each direction")
        self.forwards, self.backwards = (_lstm(input_dim // 2, dim // 2) for _ in range(2))

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        ahead, back = self._outputs(values, lengths)
        return normalize(torch.cat([last_true_step(ahead, lengths), back[:, 0]], dim=1), dim=1)

    def encode_words(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Return unit word embeddings (B, T, d); zero after the end of a sentence."""
        embeddings = normalize(torch.cat(self._outputs(values, lengths), dim=2), dim=2)
        inside = torch.arange(values.shape[2], device=values.device) < lengths[:, None]
        return embeddings * inside[:, :, None]

    def _outputs(self, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, T, d / 2) of both directions; outputs after the end of a sentence are undefined."""
        self.check_layers(values)
        tokens = values[:, 0, :, : self.input_dim // 2]
        ahead, _ = self.forwards(tokens)
        back, _ = self.backwards(reverse(tokens, lengths))
        return ahead, reverse(back, lengths)


def _lstm(input_dim: int, units: int) -> nn.LSTM:
    network = nn.LSTM(input_dim, units, batch_first=True)
    # The bias of the cell input makes the outputs of a new network positive, like the cells of MultiLevelEncoder:
    # attention is a ReLU of their cosine, and negative cosines would get no gradient.
    bias = dict(network.named_parameters())["bias_ih_l0"]
    nn.init.constant_(bias[2 * units : 3 * units], 1.0)
    return network
