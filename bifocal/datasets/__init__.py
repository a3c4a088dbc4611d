"""Datasets: images, captions, phrases with boxes, labels, splits. One corpus reader per file in ``corpora``."""

from typing import TYPE_CHECKING

from bifocal.registry import lazy_attributes

# Most of these import pandas, which takes half a second.
if TYPE_CHECKING:
    from bifocal.datasets.base import Corpus
    from bifocal.datasets.dataset import Dataset, read_dataset
    from bifocal.datasets.writer import write_dataset
else:
    _MODULES = {"Corpus": "base", "Dataset": "dataset", "read_dataset": "dataset", "write_dataset": "writer"}
    __getattr__ = lazy_attributes(__name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()})
