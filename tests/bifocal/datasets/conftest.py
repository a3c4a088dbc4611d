"""Small photographs, and a small corpus of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, PhraseEntry
from tests.bifocal.datasets.small import HEIGHT, WIDTH

Photograph = Callable[..., Path]


@pytest.fixture
def photograph() -> Photograph:
    """Write noise as an image file in the format of its suffix; the seed determines the pixels."""

    def write(path: Path, seed: int = 0, width: int = 24, height: int = 16) -> Path:
        pixels = np.random.default_rng(seed).integers(0, 256, size=(height, width, 3), dtype=np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        return path

    return write


@pytest.fixture
def corpus(tmp_path: Path, photograph: Photograph) -> Corpus:
    """Three images, one per split, each with two captions and a phrase."""
    root = tmp_path / "photos"
    for seed, split in enumerate(SPLITS):
        photograph(root / split / "a.jpg", seed=seed, width=WIDTH, height=HEIGHT)
    captions = [CaptionEntry(number, SPLITS[number // 2], f"caption {number}") for number in range(6)]
    return Corpus(
        root,
        [ImageEntry(split, f"{split}/a.jpg", split) for split in SPLITS],
        captions,
        [PhraseEntry(split, 2 * number, "caption", ((0, 0, 5, 6),)) for number, split in enumerate(SPLITS)],
    )
