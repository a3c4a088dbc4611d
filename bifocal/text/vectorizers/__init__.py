"""Vectorizers, one per file: captions as token ids, vectors, contextual vectors or sparse vectors."""

from bifocal.text.vectorizers.concatenated import Concatenated
from bifocal.text.vectorizers.contextual.elmo_layers import ElmoLayers
from bifocal.text.vectorizers.contextual.open_clip_text import OpenClipText
from bifocal.text.vectorizers.contextual.sentence_vectors import SentenceVectors
from bifocal.text.vectorizers.contextual.subwords import Subwords
from bifocal.text.vectorizers.contextual.transformer_tokens import TransformerTokens
from bifocal.text.vectorizers.from_text import FromText
from bifocal.text.vectorizers.static.fisher import FisherVectors
from bifocal.text.vectorizers.static.mean_word_vectors import MeanWordVectors
from bifocal.text.vectorizers.static.pretrained_word_vectors import PretrainedWordVectors
from bifocal.text.vectorizers.static.static_vectors import StaticVectors
from bifocal.text.vectorizers.static.word2vec import Word2Vec
from bifocal.text.vectorizers.tfidf import TFIDF
