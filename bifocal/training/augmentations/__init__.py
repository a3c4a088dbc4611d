"""Augmentations, one per file: random changes of each training batch."""

from bifocal.training.augmentations.random_rectangle import RandomRectangle
from bifocal.training.augmentations.region_drop import RegionDrop
from bifocal.training.augmentations.word_drop import WordDrop
