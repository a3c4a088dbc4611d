"""Vectorizers: captions as token ids, vectors, contextual vectors or sparse vectors."""

from bifocal.onnx.text.fisher import FisherVectors
from bifocal.onnx.text.pretrained_word_vectors import PretrainedWordVectors
from bifocal.onnx.text.tfidf import TFIDF
from bifocal.onnx.text.word2vec import MeanWordVectors, Word2Vec
from bifocal.text.vectorizers.combined import Concatenated, FromText
from bifocal.text.vectorizers.elmo_layers import ElmoLayers
from bifocal.text.vectorizers.open_clip_text import OpenClipText
from bifocal.text.vectorizers.transformers import SentenceVectors, TransformerTokens
