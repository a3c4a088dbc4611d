"""Synthetic scenes: images, captions and phrases with boxes, all drawn from a seed."""

from pathlib import Path

import numpy as np

from bifocal.datasets.base import SPLITS, Corpus
from bifocal.datasets.scenes.captions import Sentence, describe, name_groups
from bifocal.datasets.scenes.layout import Scene, draw_layout
from bifocal.datasets.scenes.reading import check_sizes, read_scenes

CAPTIONS_PER_IMAGE = 5
MAX_SHORT = 5
"""Every scene has so many different short captions."""


class Scenes:
    """Scenes of 1 to 4 objects of ten shapes, eight colors, four textures and three sizes on nine backgrounds.

    Each image has five different captions of one grammar, and labels for two tasks: "count", the number of objects, and
    "shapes", presence of each of the ten shapes. Every phrase that names objects has their boxes; "two blue rings" has
    two. Its category is their shape. Words for the background and for positions ("in the top left corner") have none.

    The same seed gives the same bytes. An image depends only on the seed, its split and its number: the first 100 of
    2,000 images are the images of a set of 100.

    Args:
        seed: seed of images and captions.
        train, val, test: number of images per split.
        size: side of the square images, in pixels.
        short: number of further captions per image, such as "two red stars", which name a single group of objects.

    Example:
        >>> scene, sentences = Scenes(seed=1).scene("train", 0)
        >>> len(sentences)
        5
    """

    def __init__(
        self, seed: int = 0, train: int = 2000, val: int = 250, test: int = 250, size: int = 128, short: int = 0
    ) -> None:
        if not 0 <= short <= MAX_SHORT:
            raise ValueError(f"Scenes: short is {short}, expected 0 to {MAX_SHORT} short captions per image")
        self.seed, self.size, self.short = seed, size, short
        self.counts = (train, val, test)
        check_sizes("Scenes", self.counts, size)

    def scene(self, split: str, number: int) -> tuple[Scene, list[Sentence]]:
        """Return scene ``number`` (from 0) of ``split`` and its captions."""
        random = np.random.default_rng([self.seed, SPLITS.index(split), number])
        scene = draw_layout(random)
        sentences = describe(scene, CAPTIONS_PER_IMAGE, random)
        return scene, sentences + name_groups(scene, self.short, random)

    def read(self, output_dir: Path) -> Corpus:
        """Draw every scene and save it below ``output_dir`` as ``<split>/<number>.jpg``."""
        return read_scenes(self.scene, self.counts, self.size, output_dir)
