"""Text encoders: ``forward(values, lengths) -> (B, d)``, of unit norm."""

from bifocal.text_encoders.contextual.elmo_bilstm import ElmoBiLSTMEncoder
from bifocal.text_encoders.contextual.elmo_mixture import ElmoMixtureEncoder
from bifocal.text_encoders.contextual.token_mixture import TokenMixtureEncoder
from bifocal.text_encoders.heads import (
    BagOfWordsEncoder,
    LinearEncoder,
    ProjectionEncoder,
    ResidualHead,
)
from bifocal.text_encoders.recurrent.rnn import GRUEncoder, LSTMEncoder
from bifocal.text_encoders.recurrent.sru import SRUEncoder
