"""Sources of a backbone's weights, one per file."""

from bifocal.backbones.weights.from_file import FromFile
from bifocal.backbones.weights.pretrained import Pretrained
from bifocal.backbones.weights.train_classifier import TrainClassifier
from bifocal.backbones.weights.train_on_phrases import TrainOnPhrases
