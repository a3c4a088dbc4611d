"""Sources of batches beside captions of images: images with joined captions, and phrases with boxes."""

from bifocal.training.pairs.phrase_boxes import PhraseBoxPairs
from bifocal.training.pairs.semantic import SemanticPairs
