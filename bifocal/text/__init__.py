"""Text: tokens, vocabulary, the text store, and the vectorizers that ``params.yaml`` names."""

from bifocal.text.bag_of_words import TfIdf
from bifocal.text.elmo import Elmo as Elmo
from bifocal.text.elmo_layers import ElmoLayers
from bifocal.text.fisher import FisherVectors
from bifocal.text.loaded_words import LoadedWords
from bifocal.text.mean_words import MeanWords
from bifocal.text.rows import Text as Text
from bifocal.text.store import TextStore as TextStore
from bifocal.text.tokens import tokenize
from bifocal.text.vectorizer import load_vectorizer, write_text
from bifocal.text.vocabulary import Vocabulary as Vocabulary
from bifocal.text.word2vec import Word2Vec

__all__ = [
    "ElmoLayers",
    "FisherVectors",
    "LoadedWords",
    "MeanWords",
    "TfIdf",
    "Word2Vec",
    "load_vectorizer",
    "tokenize",
    "write_text",
]
