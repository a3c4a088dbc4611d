"""Text encoders: ``forward(values, lengths) -> (B, d)``, l2-normalised.

Over tokens' vectors (B, T, K): SRU, GRU, LSTM; over contextual vectors (B, L, T, K): ELMo's mixture; over one vector
per caption (B, K): bag of words, projection.
"""

from bifocal.text_encoders.bag_of_words import BagOfWordsEncoder
from bifocal.text_encoders.elmo_mixture import ElmoMixtureEncoder
from bifocal.text_encoders.gru import GruEncoder
from bifocal.text_encoders.linear import LinearEncoder
from bifocal.text_encoders.lstm import LstmEncoder
from bifocal.text_encoders.projection import ProjectionEncoder
from bifocal.text_encoders.sru import SruEncoder

__all__ = [
    "BagOfWordsEncoder",
    "ElmoMixtureEncoder",
    "GruEncoder",
    "LinearEncoder",
    "LstmEncoder",
    "ProjectionEncoder",
    "SruEncoder",
]
