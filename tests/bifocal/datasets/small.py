"""Settings and helpers for small datasets."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from bifocal.datasets import write_dataset
from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry
from bifocal.datasets.corpora import Scenes

SETTINGS = {"copy_images": False, "max_pixels": 10_000, "max_rejected_fraction": 1.0}
WIDTH, HEIGHT = 24, 16


def rejected(directory: Path) -> dict[str, str]:
    table = pd.read_parquet(directory / "rejected.parquet")
    return dict(zip(table["entry"], table["reason"], strict=True))


def add(corpus: Corpus, image: ImageEntry) -> Corpus:
    """Add an image and its caption to ``corpus``."""
    caption = CaptionEntry(100, image.image_id, "one more")
    return replace(corpus, images=[*corpus.images, image], captions=[*corpus.captions, caption])


def write_copies(folder: Path, corpus: Corpus) -> None:
    """Write a dataset with copies of all images, of which none may be rejected."""
    write_dataset(
        folder, "small", corpus, copy_images=True, max_pixels=10**6, max_rejected_fraction=0.0
    )


def write_scenes(folder: Path, train: int, val: int, test: int) -> Corpus:
    """Write a dataset of drawn scenes of 64 x 64 pixels."""
    corpus = Scenes(train=train, val=val, test=test, size=64).read(folder / "images")
    write_copies(folder, corpus)
    return corpus
