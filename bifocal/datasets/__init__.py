"""Datasets, one corpus per file: images, captions, phrases with boxes, labels, splits."""

from bifocal.datasets.base import Corpus as Corpus
from bifocal.datasets.coco import Coco
from bifocal.datasets.coco_instances import CocoInstances
from bifocal.datasets.dataset import Dataset as Dataset
from bifocal.datasets.dataset import read_dataset
from bifocal.datasets.flickr8k import Flickr8k
from bifocal.datasets.flickr30k import Flickr30k
from bifocal.datasets.flickr30k_entities import Flickr30kEntities
from bifocal.datasets.images import open_image
from bifocal.datasets.lamem import LaMem
from bifocal.datasets.mediaeval import MediaEval
from bifocal.datasets.precomputed import Precomputed
from bifocal.datasets.referit import ReferIt
from bifocal.datasets.scenes import Scenes
from bifocal.datasets.triplets import read_triplets
from bifocal.datasets.visual_genome import VisualGenome
from bifocal.datasets.voc import Voc
from bifocal.datasets.writer import write_dataset

__all__ = [
    "Coco",
    "CocoInstances",
    "Flickr8k",
    "Flickr30k",
    "Flickr30kEntities",
    "LaMem",
    "MediaEval",
    "Precomputed",
    "ReferIt",
    "Scenes",
    "VisualGenome",
    "Voc",
    "open_image",
    "read_dataset",
    "read_triplets",
    "write_dataset",
]
