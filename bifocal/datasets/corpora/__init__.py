"""Corpora, one reader per file: images, captions, phrases with boxes, labels, splits."""

from bifocal.datasets.corpora.coco_instances import COCOInstances
from bifocal.datasets.corpora.combined import Combined
from bifocal.datasets.corpora.flickr8k import Flickr8k
from bifocal.datasets.corpora.flickr30k_entities import Flickr30kEntities
from bifocal.datasets.corpora.image_folder import ImageFolder
from bifocal.datasets.corpora.karpathy import COCO, Flickr30k
from bifocal.datasets.corpora.lamem import LaMem
from bifocal.datasets.corpora.mediaeval import MediaEval
from bifocal.datasets.corpora.precomputed_captions import PrecomputedCaptions
from bifocal.datasets.corpora.refcoco import RefCOCO
from bifocal.datasets.corpora.referit import ReferIt
from bifocal.datasets.corpora.subset import Subset
from bifocal.datasets.corpora.visual_genome import VisualGenome
from bifocal.datasets.corpora.voc import VOC
from bifocal.datasets.scenes.scenes import Scenes
