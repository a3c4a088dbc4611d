"""Flickr30k with the splits of Karpathy's ``dataset_flickr30k.json``."""

from pathlib import Path

from bifocal.datasets.base import Corpus
from bifocal.datasets.formats.files import read_karpathy, require_root


class Flickr30k:
    """31,014 photographs with five captions each: 29,000 train, 1,014 val, 1,000 test.

    Young et al., "From image descriptions to visual denotations", TACL 2014. The image id is its
    file name.

    Args:
        root: folder of ``dataset_flickr30k.json``.
        images: folder of the photographs below ``root``; the published archive calls it
            ``flickr30k-images``.
    """

    def __init__(self, root: Path | str | None = None, images: str = "images") -> None:
        self.root, self.images = root, images

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(self.root, "Flickr30k", f"dataset_flickr30k.json and {self.images}/")
        return read_karpathy(root / "dataset_flickr30k.json", root / self.images, "Flickr30k")
