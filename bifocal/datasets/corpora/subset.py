"""Random part of a corpus."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from bifocal.datasets.base import Corpus, CorpusReader, ImageEntry


class Subset:
    """Random images of a corpus, for a quick trial: every split keeps its share, and two images or
    more.

    Args:
        corpus: reader of the corpus.
        images: number of images; about as many are read.
        seed: seed of the draw.
    """

    parts: ClassVar[Mapping[str, str]] = {"corpus": "bifocal.datasets.corpora"}

    def __init__(
        self, corpus: CorpusReader | None = None, images: int = 500, seed: int = 0
    ) -> None:
        if images < 1:
            raise ValueError(f"Subset: images is {images}, expected 1 or more")
        self.corpus, self.images, self.seed = corpus, images, seed

    def read(self, output_dir: Path) -> Corpus:
        """List the drawn images with their captions, phrases and labels; other images are left out.

        Raises:
            ValueError: no corpus is given, or it cannot be read.
        """
        if self.corpus is None:
            raise ValueError("Subset needs corpus, the reader of a corpus")
        corpus = self.corpus.read(output_dir)
        return corpus.only(self._draw(corpus.images))

    def _draw(self, images: Iterable[ImageEntry]) -> set[str]:
        images = list(images)
        order = np.random.default_rng(self.seed).permutation(len(images))
        share = min(1.0, self.images / max(1, len(images)))
        left = {
            split: max(2, round(share * count))
            for split, count in Counter(i.split for i in images).items()
        }
        kept = set()
        for row in order:
            split = images[row].split
            if left[split]:
                left[split] -= 1
                kept.add(images[row].image_id)
        return kept
