"""Sources of a backbone's weights, one per file."""

from bifocal.training.weights.loaded import FromFile, Pretrained
from bifocal.training.weights.train_classifier import TrainClassifier
from bifocal.training.weights.train_on_phrases import TrainOnPhrases
