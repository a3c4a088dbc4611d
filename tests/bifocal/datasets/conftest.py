"""A small corpus of photographs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry, PhraseEntry
from tests.bifocal.datasets.small import HEIGHT, WIDTH


@pytest.fixture
def corpus(tmp_path: Path, photograph: Callable[..., Path]) -> Corpus:
    """Three images, one per split, each with two captions and a phrase."""
    root = tmp_path / "photos"
    for seed, split in enumerate(SPLITS):
        photograph(root / split / "a.jpg", seed=seed, width=WIDTH, height=HEIGHT)
    captions = [
        CaptionEntry(number, SPLITS[number // 2], f"caption {number}") for number in range(6)
    ]
    return Corpus(
        root,
        [ImageEntry(split, f"{split}/a.jpg", split) for split in SPLITS],
        captions,
        [
            PhraseEntry(split, 2 * number, "caption", ((0, 0, 5, 6),))
            for number, split in enumerate(SPLITS)
        ],
    )
