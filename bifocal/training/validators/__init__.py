"""Validators, one per file: the metric that chooses the epoch."""

from bifocal.training.validators.phrases import Phrases
from bifocal.training.validators.pointing import Pointing
from bifocal.training.validators.recall import Recall
from bifocal.training.validators.semantic import Semantic
