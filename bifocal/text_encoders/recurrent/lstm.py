"""Long short-term memory as text encoder."""

from torch import nn

from bifocal.text_encoders.recurrent.rnn import RecurrentEncoder


class LSTMEncoder(RecurrentEncoder):
    """LSTM; arguments and shapes: see ``RecurrentEncoder``.

    Hochreiter and Schmidhuber, "Long short-term memory", 1997.

    Example:
        >>> import torch
        >>> LSTMEncoder(input_dim=5, dim=4)(torch.rand(2, 3, 5), torch.tensor([3, 1])).shape
        torch.Size([2, 4])
    """

    network = nn.LSTM
