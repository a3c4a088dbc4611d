"""Captions that a training needs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bifocal.datasets.corpora import ImageFolder
from bifocal.registry import build

LEAST = 10
"""Images with captions of which 15 % are at least two: the splits val and test need as many."""


def check_captions(section: Any) -> None:
    """Raise ``ValueError`` if ``prepare_dataset`` names a folder with too few captions; archives are not opened."""
    corpus = section.get("corpus") if isinstance(section, Mapping) else None
    if isinstance(corpus, Mapping) and corpus.get("name") == ImageFolder.__name__:
        root = str(corpus.get("root"))
        if Path(root).is_dir():
            check_count(root, build("bifocal.datasets.corpora", corpus))


def check_count(directory: str, images: ImageFolder) -> None:
    """Raise ``ValueError`` if a training needs more images with captions."""
    count = images.count_captioned()
    if count is not None and count < LEAST:
        raise ValueError(
            f"{directory} has {count} images with captions, and a training needs at least {LEAST}: add images with "
            f"captions, or search these without a training, by 'bifocal index {directory}'"
        )
