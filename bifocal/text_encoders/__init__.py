"""Text encoders, one per file: ``forward(values, lengths) -> (B, d)``, of unit norm."""

from bifocal.text_encoders.bag_of_words import BagOfWordsEncoder
from bifocal.text_encoders.contextual.elmo_bilstm import ElmoBiLSTMEncoder
from bifocal.text_encoders.contextual.elmo_mixture import ElmoMixtureEncoder
from bifocal.text_encoders.contextual.token_mixture import TokenMixtureEncoder
from bifocal.text_encoders.linear import LinearEncoder
from bifocal.text_encoders.projection import ProjectionEncoder
from bifocal.text_encoders.recurrent.rnn import GRUEncoder, LSTMEncoder
from bifocal.text_encoders.recurrent.sru import SRUEncoder
from bifocal.text_encoders.residual import ResidualHead
