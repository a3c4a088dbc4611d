"""Flickr30k Entities in its published files: sentences with marked phrases, and one XML file of
boxes per image."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from bifocal.datasets.base import (
    SPLITS,
    Box,
    CaptionEntry,
    Corpus,
    ImageEntry,
    PhraseEntry,
    RejectedEntry,
)
from bifocal.datasets.formats.entries import placed, read_entries
from bifocal.datasets.formats.files import (
    find_lists,
    read_lines,
    read_names,
    read_xml,
    require_root,
)

_PHRASE = re.compile(r"\[/EN#(?P<chain>\d+)(?P<types>(?:/[^\s/]+)+) (?P<phrase>[^\]]*)\]")
_NOT_VISUAL = "0"


class Flickr30kEntities:
    """31,783 photographs with five captions each, and 244,000 phrases of the captions with boxes.

    Plummer et al., "Flickr30k Entities", ICCV 2015, with its lists of splits. The image id is its
    file name. Phrases without a box (scenes and phrases that name nothing visible) are excluded and
    listed. The category of a phrase is its type, such as "people" or "bodyparts".

    The files count pixels from 1 and include the last pixel; the entries have the edges of the box.

    Args:
        root: folder of ``Sentences``, ``Annotations``, the lists ``train.txt``, ``val.txt``,
            ``test.txt`` and the photographs.
        images: folder of the photographs below ``root``.
    """

    def __init__(self, root: Path | str | None = None, images: str = "flickr30k-images") -> None:
        self.root, self.images = root, images

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(
            self.root, "Flickr30kEntities", "Sentences/, Annotations/, test.txt and the photographs"
        )
        lists = find_lists(root, {split: f"{split}.txt" for split in SPLITS}, "Flickr30kEntities")
        corpus = Corpus(root / self.images)

        def read(split: str, number: str) -> ImageEntry:
            image_id = f"{number}.jpg"
            size, boxes = read_boxes(root / "Annotations" / f"{number}.xml", corpus.rejected)
            for line in read_lines(root / "Sentences" / f"{number}.txt", "Flickr30kEntities"):
                caption = CaptionEntry(len(corpus.captions), image_id, plain_sentence(line))
                corpus.captions.append(caption)
                for chain, types, phrase in marked_phrases(line):
                    if boxes[chain]:
                        entry = PhraseEntry(
                            image_id, caption.caption_id, phrase, tuple(boxes[chain]), types
                        )
                        corpus.phrases.append(entry)
                    else:
                        reason = "names nothing visible" if chain == _NOT_VISUAL else "no box"
                        corpus.exclude("phrase", f"{phrase!r} of {image_id}", reason)
            return ImageEntry(image_id, image_id, split, size)

        for split, path in lists.items():
            numbers = (
                (f"{number}.jpg", number) for number in read_names(path, "Flickr30kEntities")
            )
            corpus.images += read_entries("image", numbers, partial(read, split), corpus.rejected)
        return corpus


def plain_sentence(line: str) -> str:
    """Return a line of a ``Sentences`` file without its marks."""
    return _PHRASE.sub(lambda match: match["phrase"], line).strip()


def marked_phrases(line: str) -> Iterator[tuple[str, str, str]]:
    """Return coreference chain, types and phrase of every mark in a line of a ``Sentences``
    file."""
    return (
        (match["chain"], match["types"][1:], match["phrase"]) for match in _PHRASE.finditer(line)
    )


def read_boxes(
    path: Path, rejected: list[RejectedEntry]
) -> tuple[tuple[int, int], defaultdict[str, list[Box]]]:
    """Read an ``Annotations`` file: (width, height) of the image, and the boxes of every
    coreference chain."""
    boxes: defaultdict[str, list[Box]] = defaultdict(list)

    def read(item: ElementTree.Element) -> None:
        if item.find("bndbox") is not None:
            x0, y0, x1, y1 = (
                _read_integer(item, f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax")
            )
            for name in item.iter("name"):
                boxes[str(name.text)].append((x0 - 1.0, y0 - 1.0, float(x1), float(y1)))

    document = read_xml(path, "Flickr30kEntities")
    size = _read_integer(document, "size/width"), _read_integer(document, "size/height")
    read_entries("phrase", placed(path.name, document.iter("object")), read, rejected)
    return size, boxes


def _read_integer(element: ElementTree.Element, path: str) -> int:
    text = element.findtext(path)
    if text is None:
        raise ValueError(f"no {path}")
    return int(text)
