"""Winoground: two images and two captions of the same words, in each example."""

import json
from dataclasses import dataclass
from pathlib import Path

from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry, RejectedEntry
from bifocal.datasets.formats.entries import numbered, read_entries, read_id, read_text
from bifocal.datasets.formats.files import read_lines, require_root


@dataclass(frozen=True)
class WinogroundExample:
    """Ids of two images, their captions, and the kind of words that change places."""

    name: str
    images: tuple[str, str]
    captions: tuple[str, str]
    tag: str


def read_examples(path: Path, rejected: list[RejectedEntry]) -> list[WinogroundExample]:
    """Read one example per line: ``id``, ``image_0``, ``image_1``, ``caption_0``, ``caption_1``,
    ``collapsed_tag``."""

    def read(line: str) -> WinogroundExample:
        row = json.loads(line)
        images, captions = (
            (read_text(row[f"{key}_0"]), read_text(row[f"{key}_1"])) for key in ("image", "caption")
        )
        return WinogroundExample(
            read_id(row["id"]), images, captions, read_text(row["collapsed_tag"])
        )

    return read_entries("image", numbered(path, read_lines(path, "Winoground")), read, rejected)


class Winoground:
    """800 photographs with one caption each, in 400 examples of two; all in the split "test".

    Thrush et al., "Winoground", CVPR 2022. The evaluator ``Winoground`` compares the two of an
    example.

    Args:
        root: folder of ``examples.jsonl`` and ``images``, as published.
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = root

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(self.root, "Winoground", "examples.jsonl and images/")
        corpus = Corpus(root / "images")
        for example in read_examples(root / "examples.jsonl", corpus.rejected):
            for image_id, text in zip(example.images, example.captions, strict=True):
                corpus.images.append(ImageEntry(image_id, f"{image_id}.png", "test"))
                corpus.captions.append(CaptionEntry(len(corpus.captions), image_id, text))
        return corpus
