"""Miners: which triplets, and which boxes, are worth training on."""

from bifocal.mining.boxes import hard_negative_boxes
from bifocal.mining.phrases import PhraseBoxes, PhraseSampler, PhraseValidation
from bifocal.mining.semantic import MiningSampler, SemanticPairs, mine_triplets, relevant_images
from bifocal.mining.validation import SemanticValidation

__all__ = [
    "MiningSampler",
    "PhraseBoxes",
    "PhraseSampler",
    "PhraseValidation",
    "SemanticPairs",
    "SemanticValidation",
    "hard_negative_boxes",
    "mine_triplets",
    "relevant_images",
]
