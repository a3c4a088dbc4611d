"""Datasets: images, captions, phrases with boxes, labels, splits. One corpus reader per file in ``corpora``."""

from typing import TYPE_CHECKING

from bifocal.registry import lazy_attributes

# Most of these import pandas, which takes half a second.
if TYPE_CHECKING:
    from bifocal.datasets.base import Corpus
    from bifocal.datasets.dataset import Dataset, read_dataset
    from bifocal.datasets.writer import write_dataset
    from bifocal.onnx.images import open_image
else:
    _MODULES = {
        "Corpus": "bifocal.datasets.base",
        "Dataset": "bifocal.datasets.dataset",
        "open_image": "bifocal.onnx.images",
        "read_dataset": "bifocal.datasets.dataset",
        "write_dataset": "bifocal.datasets.writer",
    }
    __getattr__ = lazy_attributes(__name__, _MODULES)
