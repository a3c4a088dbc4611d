"""Corpus of twin scenes, where a bag of words does not tell two images apart."""

from pathlib import Path

import numpy as np

from bifocal.datasets.base import SPLITS, Corpus
from bifocal.datasets.scenes.captions import Sentence
from bifocal.datasets.scenes.layout import Scene
from bifocal.datasets.scenes.reading import check_sizes, read_scenes
from bifocal.datasets.scenes.twins import KINDS, Kind, describe_twins, draw_twins

CAPTIONS_PER_IMAGE = 5


class TwinScenes:
    """Pairs of scenes whose captions have the same words in another order.

    "A red star above a blue ring" and "a blue star above a red ring" are the captions of two twins, images 2 i and
    2 i + 1 of a split. Pairs of four kinds alternate. The twins exchange the colors of two objects (binding), their
    positions (relation), the numbers of two groups ("two red stars and one blue ring"), or their objects ("a red star
    but no blue ring"). Sentence j of an image is sentence j of its twin with two parts exchanged. A model that reads
    captions as bags of words cannot tell an image from its twin.

    Phrases, boxes and labels are as in ``Scenes``. The same seed gives the same bytes.

    Args:
        seed: seed of images and captions.
        train, val, test: number of images per split; even.
        size: side of the square images, in pixels.

    Raises:
        ValueError: a number is odd, negative, or the images are too small.

    Example:
        >>> for number in (0, 1):
        ...     print(TwinScenes(seed=1).scene("train", number)[1][1].text)
        A red star to the right of an orange rhombus, in a cloudy sky.
        An orange star to the right of a red rhombus, in a cloudy sky.
    """

    def __init__(self, seed: int = 0, train: int = 4000, val: int = 400, test: int = 400, size: int = 128) -> None:
        self.seed, self.size = seed, size
        self.counts = (train, val, test)
        check_sizes("TwinScenes", self.counts, size)
        for split, count in zip(SPLITS, self.counts, strict=True):
            if count % 2:
                raise ValueError(f"TwinScenes: {split} is {count}, expected an even number: every image has a twin")

    def kind(self, number: int) -> Kind:
        """Return what image ``number`` exchanges with its twin."""
        return KINDS[number // 2 % len(KINDS)]

    def scene(self, split: str, number: int) -> tuple[Scene, list[Sentence]]:
        """Return scene ``number`` (from 0) of ``split`` and its captions."""
        random = np.random.default_rng([self.seed, SPLITS.index(split), number // 2])
        twins = draw_twins(self.kind(number), random)
        sentences = describe_twins(self.kind(number), twins, CAPTIONS_PER_IMAGE, random)
        return twins[number % 2], sentences[number % 2]

    def read(self, output_dir: Path) -> Corpus:
        """Draw every scene and save it below ``output_dir`` as ``<split>/<number>.jpg``."""
        return read_scenes(self.scene, self.counts, self.size, output_dir)
