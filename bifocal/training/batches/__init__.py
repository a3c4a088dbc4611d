"""Batch samplers, one per file: the examples that share a batch."""

from bifocal.training.batches.captions import CaptionBatches, DistinctImageBatches
from bifocal.training.batches.phrase_boxes import PhraseBoxes
from bifocal.training.batches.triplets import MinedTriplets, OrderedTriplets
