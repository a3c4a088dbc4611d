"""Mining of training examples with the current model."""

from bifocal.training.mining.hard_boxes import hard_negative_boxes
from bifocal.training.mining.triplets import mine_triplets, relevant_images
