"""Long short-term memory as text encoder."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.text_encoders.gru import last_outputs
from bifocal.text_encoders.sequences import check_sequences, reverse


class LstmEncoder(nn.Module):
    """LSTM; the output at the last true token, l2-normalised. In two directions, the mean of both last outputs.

    Hochreiter and Schmidhuber, "Long short-term memory", 1997. Each direction is a stack of its own. Exports to ONNX
    with dynamic batch and time.

    Args:
        input_dim: K, size of a word vector. dim: d.
        layers: of each direction.
        bidirectional: also read from the last true token to the first.
        dropout: probability, between the layers.

    Shape:
        values (B, T, K), lengths (B,) in [1, T] -> (B, d).
    """

    def __init__(
        self,
        input_dim: int = 300,
        dim: int = 1024,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.forwards = nn.LSTM(input_dim, dim, num_layers=layers, dropout=dropout, batch_first=True)
        self.backwards = (
            nn.LSTM(input_dim, dim, num_layers=layers, dropout=dropout, batch_first=True) if bidirectional else None
        )

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            check_sequences(values, lengths, self.input_dim)
        embedding = last_outputs(self.forwards, values, lengths)
        if self.backwards is not None:
            embedding = (embedding + last_outputs(self.backwards, reverse(values, lengths), lengths)) / 2
        return normalize(embedding, dim=1)
