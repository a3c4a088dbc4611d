"""Random part of a corpus."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bifocal.datasets.base import Corpus, CorpusReader, ImageEntry
from bifocal.draws import drawn


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

    def _draw(self, images: Sequence[ImageEntry]) -> set[str]:
        share = min(1.0, self.images / max(1, len(images)))
        ids: dict[str, list[str]] = {}
        for image in images:
            ids.setdefault(image.split, []).append(image.image_id)
        return {
            name
            for names in ids.values()
            for name in drawn(names, max(2, round(share * len(names))), self.seed)
        }
