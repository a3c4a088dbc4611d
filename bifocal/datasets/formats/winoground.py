"""``examples.jsonl`` of Winoground: two images and two captions of the same words in each example."""

import json
from dataclasses import dataclass
from pathlib import Path

from bifocal.datasets.formats.files import read_lines


@dataclass(frozen=True)
class Example:
    """Ids of two images, their captions, and the kind of words that change places."""

    name: str
    images: tuple[str, str]
    captions: tuple[str, str]
    tag: str


def read_examples(path: Path) -> list[Example]:
    """Read one example per line: ``id``, ``image_0``, ``image_1``, ``caption_0``, ``caption_1``, ``collapsed_tag``."""
    examples = []
    for number, line in enumerate(read_lines(path, "Winoground"), 1):
        try:
            row = json.loads(line)
            images, captions = ((str(row[f"{key}_0"]), str(row[f"{key}_1"])) for key in ("image", "caption"))
            examples.append(Example(str(row["id"]), images, captions, str(row["collapsed_tag"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}, line {number}: not an example of Winoground: {type(error).__name__} {error}"
            ) from error
    return examples
