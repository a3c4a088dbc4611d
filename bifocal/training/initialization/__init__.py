"""Initializations of a model, one per file: the weights that a training starts from, or that are
the result."""

from bifocal.training.initialization.cca import CCA, PhraseCCA
from bifocal.training.initialization.class_sentences import ClassSentences
from bifocal.training.initialization.pca_whitening import PCAWhitening
from bifocal.training.initialization.pretrained import FromEmbedding, ZeroShot
