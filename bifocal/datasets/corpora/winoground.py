"""Winoground: two images and two captions of the same words, in each example."""

import json
from dataclasses import dataclass
from pathlib import Path

from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry
from bifocal.datasets.formats.files import read_lines, require_root


@dataclass(frozen=True)
class WinogroundExample:
    """Ids of two images, their captions, and the kind of words that change places."""

    name: str
    images: tuple[str, str]
    captions: tuple[str, str]
    tag: str


def read_examples(path: Path) -> list[WinogroundExample]:
    """Read one example per line: ``id``, ``image_0``, ``image_1``, ``caption_0``, ``caption_1``, ``collapsed_tag``."""
    examples = []
    for number, line in enumerate(read_lines(path, "Winoground"), 1):
        try:
            row = json.loads(line)
            images, captions = ((str(row[f"{key}_0"]), str(row[f"{key}_1"])) for key in ("image", "caption"))
            examples.append(WinogroundExample(str(row["id"]), images, captions, str(row["collapsed_tag"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}, line {number}: not an example of Winoground: {type(error).__name__} {error}"
            ) from error
    return examples


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
