"""Datasets: images, captions, phrases with boxes, labels, splits. One corpus reader per file in ``corpora``."""

from bifocal.datasets.base import Corpus
from bifocal.datasets.dataset import Dataset, read_dataset
from bifocal.datasets.images import open_image
from bifocal.datasets.writer import write_dataset
