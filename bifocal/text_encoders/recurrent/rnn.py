"""GRU and LSTM as text encoders."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence

from bifocal.text_encoders.base import TextEncoder, check_sequences, last_true_step, reverse


def last_outputs(network: nn.GRU | nn.LSTM, values: Tensor, lengths: Tensor) -> Tensor:
    """Return the output of a one-directional ``network`` at the last true step: (B, T, K), (B,) ->
    (B, d)."""
    if torch.compiler.is_exporting():
        return last_true_step(network(values)[0], lengths)
    packed = pack_padded_sequence(values, lengths.cpu(), batch_first=True, enforce_sorted=False)
    state = network(packed)[1]
    last: Tensor = (state[0] if isinstance(network, nn.LSTM) else state)[-1]
    return last


class RecurrentEncoder(TextEncoder):
    """Output of a recurrent network at the last true token, l2-normalized; with two directions, the
    mean of both.

    Each direction is a separate stack of layers. Exports to ONNX with dynamic batch and time.

    Args:
        input_dim: K, dimension of a word vector.
        dim: d, dimension of the embedding.
        layers: layers of each direction.
        bidirectional: also read from the last true token to the first.
        dropout: probability, between the layers.

    Shape:
        values (B, T, K), lengths (B,) in [1, T] -> (B, d).
    """

    network: ClassVar[type[nn.GRU] | type[nn.LSTM]]

    def __init__(
        self,
        input_dim: int = 300,
        dim: int = 1024,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(input_dim, dim)
        self.forwards = self.network(
            input_dim, dim, num_layers=layers, dropout=dropout, batch_first=True
        )
        self.backwards: nn.GRU | nn.LSTM | None = None
        if bidirectional:
            self.backwards = self.network(
                input_dim, dim, num_layers=layers, dropout=dropout, batch_first=True
            )

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            check_sequences(values, lengths, self.input_dim)
        embedding = last_outputs(self.forwards, values, lengths)
        if self.backwards is not None:
            embedding = (
                embedding + last_outputs(self.backwards, reverse(values, lengths), lengths)
            ) / 2
        return normalize(embedding, dim=1)


class GRUEncoder(RecurrentEncoder):
    """GRU; arguments and shapes: see ``RecurrentEncoder``.

    Faghri et al., "VSE++", BMVC 2018 (one layer of 1024); Lee et al., "Stacked cross attention",
    ECCV 2018 (the mean of two directions).

    Example:
        >>> GRUEncoder(input_dim=5, dim=4)(torch.rand(2, 3, 5), torch.tensor([3, 1])).shape
        torch.Size([2, 4])
    """

    network = nn.GRU


class LSTMEncoder(RecurrentEncoder):
    """LSTM; arguments and shapes: see ``RecurrentEncoder``.

    Hochreiter and Schmidhuber, "Long short-term memory", 1997.

    Example:
        >>> LSTMEncoder(input_dim=5, dim=4)(torch.rand(2, 3, 5), torch.tensor([3, 1])).shape
        torch.Size([2, 4])
    """

    network = nn.LSTM
