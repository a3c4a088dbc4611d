"""An archive of drawn images that grows week by week, and its table of captions."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

from bifocal.datasets.scenes.drawing import draw_scene
from bifocal.datasets.scenes.scenes import Scenes

SIDE = 128
"""Pixels of an image's side."""
SHORT = 2
"""Short captions of an image, beside five long ones; a query is a short caption."""
FIRST_QUERY = 100_000
"""Number of the first scene that a query describes; no image shows it."""
QUERY_SPLIT = "val"
Row = tuple[str, str, str]
"""Image, caption and split."""


class Archive:
    """Images in a folder, of which a part has captions.

    Args:
        folder: of the images.
        seed: of the scenes.
        style: changes an image to the new style.

    Attributes:
        rows: of the table of captions.
    """

    def __init__(
        self, folder: Path, seed: int, style: Callable[[Image.Image], Image.Image]
    ) -> None:
        self.folder, self.style = folder, style
        self.rows: list[Row] = []
        self._corpus = Scenes(seed=seed, short=SHORT)
        self._drawn = {"train": 0, "val": 0, "test": 0}
        self._asked = FIRST_QUERY

    def add(self, name: str, split: str, count: int, captioned: int, styled: int = 0) -> None:
        """Draw images to the folder ``name``.

        Args:
            captioned: number of images with captions.
            styled: number of images in the new style, evenly distributed.
        """
        (self.folder / name).mkdir(parents=True)
        for number in range(count):
            scene, sentences = self._corpus.scene(split, self._drawn[split])
            self._drawn[split] += 1
            image = draw_scene(scene, SIDE)
            if (number + 1) * styled // count > number * styled // count:
                image = self.style(image)
            path = f"{name}/{number:05d}.jpg"
            image.save(self.folder / path, "JPEG", quality=95, subsampling=0)
            if (number + 1) * captioned // count > number * captioned // count:
                self.rows += [(path, sentence.text, split) for sentence in sentences]

    def queries(self, count: int) -> list[str]:
        """Return new short sentences, as users search; each describes another scene, so that they
        are independent."""
        first, self._asked = self._asked, self._asked + count
        return [
            self._corpus.scene(QUERY_SPLIT, number)[1][-1].text
            for number in range(first, first + count)
        ]


def write_table(file: Path, rows: Sequence[Row]) -> None:
    """Write a table of captions, as ``ImageFolder`` reads it."""
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(("image", "caption", "split"))
        writer.writerows(rows)


def in_wrong_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the captions of train beside other images: the fault of a table that was
    sorted in part."""
    train = [row for row in rows if row[2] == "train"]
    half = len(train) // 2
    moved = [
        (image, train[(number + half) % len(train)][1], split)
        for number, (image, _, split) in enumerate(train)
    ]
    return [*moved, *(row for row in rows if row[2] != "train")]


def cut_off(rows: Sequence[Row], images: int) -> list[Row]:
    """Return only the rows with the first images of train, as an export that ended early."""
    kept = set(list(dict.fromkeys(image for image, _, split in rows if split == "train"))[:images])
    return [row for row in rows if row[2] != "train" or row[0] in kept]
