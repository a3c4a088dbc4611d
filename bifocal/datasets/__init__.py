"""Datasets: images, captions, phrases with boxes, labels, splits. One corpus reader per file in
``corpora``."""

from typing import TYPE_CHECKING

from bifocal.registry import lazy_attributes

# Most of these import pandas, which takes half a second.
if TYPE_CHECKING:
    from bifocal.datasets.base import Corpus
    from bifocal.datasets.dataset import Dataset, read_dataset
    from bifocal.datasets.writer import write_dataset
    from bifocal.onnx.images import open_image
else:
    # No string names a module completely: a stage would depend on it.
    __getattr__ = lazy_attributes(
        __name__,
        {
            "Corpus": "datasets.base",
            "Dataset": "datasets.dataset",
            "open_image": "onnx.images",
            "read_dataset": "datasets.dataset",
            "write_dataset": "datasets.writer",
        },
    )
