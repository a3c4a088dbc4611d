"""Text encoders: ``forward(values, lengths) -> (B, d)``, of unit norm."""

from bifocal.text_encoders.contextual import (
    ElmoBiLSTMEncoder,
    ElmoMixtureEncoder,
    TokenMixtureEncoder,
)
from bifocal.text_encoders.heads import (
    BagOfWordsEncoder,
    LinearEncoder,
    ProjectionEncoder,
    ResidualHead,
)
from bifocal.text_encoders.recurrent.rnn import GRUEncoder, LSTMEncoder
from bifocal.text_encoders.recurrent.sru import SRUEncoder
