"""Vectorizers, one per file: captions as token ids, vectors, contextual vectors or sparse vectors."""

from bifocal.text.vectorizers.concatenated import Concatenated
from bifocal.text.vectorizers.elmo_layers import ElmoLayers
from bifocal.text.vectorizers.fisher import FisherVectors
from bifocal.text.vectorizers.from_text import FromText
from bifocal.text.vectorizers.mean_word_vectors import MeanWordVectors
from bifocal.text.vectorizers.open_clip_text import OpenClipText
from bifocal.text.vectorizers.pretrained_word_vectors import PretrainedWordVectors
from bifocal.text.vectorizers.sentence_vectors import SentenceVectors
from bifocal.text.vectorizers.static_vectors import StaticVectors
from bifocal.text.vectorizers.subwords import Subwords
from bifocal.text.vectorizers.tfidf import TFIDF
from bifocal.text.vectorizers.transformer_tokens import TransformerTokens
from bifocal.text.vectorizers.word2vec import Word2Vec
