"""Text encoders: ``forward(values, lengths) -> (B, d)``, l2-normalised.

Over tokens' vectors (B, T, K): SRU, GRU, LSTM; over contextual vectors (B, L, T, K): ELMo's mixture; over one vector
per caption (B, K): bag of words, projection.
"""

from bifocal.text_encoders.bag_of_words import BagOfWordsEncoder
from bifocal.text_encoders.elmo_mixture import ElmoMixtureEncoder
from bifocal.text_encoders.gru import GRUEncoder
from bifocal.text_encoders.linear import LinearEncoder
from bifocal.text_encoders.lstm import LSTMEncoder
from bifocal.text_encoders.projection import ProjectionEncoder
from bifocal.text_encoders.sru import SRUEncoder
