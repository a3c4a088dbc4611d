"""Settings and helpers for small datasets."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry

SETTINGS = {"copy_images": False, "max_pixels": 10_000, "max_rejected_fraction": 1.0}
WIDTH, HEIGHT = 24, 16


def rejected(directory: Path) -> dict[str, str]:
    table = pd.read_parquet(directory / "rejected.parquet")
    return dict(zip(table["entry"], table["reason"], strict=True))


def add(corpus: Corpus, image: ImageEntry) -> Corpus:
    """Add an image and its caption to ``corpus``."""
    caption = CaptionEntry(100, image.image_id, "one more")
    return replace(corpus, images=[*corpus.images, image], captions=[*corpus.captions, caption])
