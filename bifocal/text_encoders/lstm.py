"""Long short-term memory as text encoder."""

from torch import nn

from bifocal.text_encoders.recurrent import RecurrentEncoder


class LSTMEncoder(RecurrentEncoder):
    """LSTM; arguments and shapes are those of ``RecurrentEncoder``.

    Hochreiter and Schmidhuber, "Long short-term memory", 1997.
    """

    network = nn.LSTM
