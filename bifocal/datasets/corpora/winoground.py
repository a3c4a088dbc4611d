"""Winoground: pairs of photographs whose captions have the same words in another order."""

from pathlib import Path

from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry
from bifocal.datasets.formats.files import require_root
from bifocal.datasets.formats.winoground import read_examples


class Winoground:
    """800 photographs with one caption each, in 400 examples of two; all in the split "test".

    Thrush et al., "Winoground", CVPR 2022. The evaluator ``Winoground`` compares the two of an example.

    Args:
        root: folder of ``examples.jsonl`` and ``images``, as published.
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = root

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(self.root, "Winoground", "examples.jsonl and images/")
        pairs = [
            pair
            for example in read_examples(root / "examples.jsonl")
            for pair in zip(example.images, example.captions, strict=True)
        ]
        return Corpus(
            root / "images",
            [ImageEntry(image_id, f"{image_id}.png", "test") for image_id, _ in pairs],
            [CaptionEntry(number, image_id, text) for number, (image_id, text) in enumerate(pairs)],
        )
