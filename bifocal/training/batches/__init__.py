"""Batch samplers, one per file: the examples that share a batch."""

from bifocal.training.batches.captions import CaptionBatches
from bifocal.training.batches.distinct_images import DistinctImageBatches
from bifocal.training.batches.mined_triplets import MinedTriplets
from bifocal.training.batches.ordered_triplets import OrderedTriplets
from bifocal.training.batches.phrase_boxes import PhraseBoxes
