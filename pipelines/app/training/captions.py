"""Captions that a training needs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bifocal.datasets.corpora import ImageFolder
from bifocal.registry import build

LEAST = 10
"""Images with captions of which 15 % are at least two: the splits val and test need as many."""


def check_captions(section: Any) -> int | None:
    """Return the images with captions of the folder of ``prepare_dataset``; None if they are not counted, as on S3.

    Raises:
        ValueError: they are too few; archives are not opened.
    """
    corpus = section.get("corpus") if isinstance(section, Mapping) else None
    if isinstance(corpus, Mapping) and corpus.get("name") == ImageFolder.__name__:
        root = str(corpus.get("root"))
        if Path(root).is_dir():
            return check_count(root, build("bifocal.datasets.corpora", corpus))
    return None


def check_count(directory: str, images: ImageFolder) -> int | None:
    """Return the images with captions, if they can be counted; raise ``ValueError`` if a training needs more."""
    count = images.count_captioned()
    if count is not None and count < LEAST:
        raise ValueError(
            f"{directory} has {count} images with captions, and a training needs at least {LEAST}: add images with "
            f"captions, or search these without a training, by 'bifocal index {directory}'"
        )
    return count
