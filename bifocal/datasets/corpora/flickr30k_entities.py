"""Flickr30k Entities as it is published: sentences with marked phrases, and an XML file of boxes for each image."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from bifocal.datasets.base import (
    SPLITS,
    CaptionEntry,
    Corpus,
    ImageEntry,
    PhraseEntry,
    RejectedEntry,
    read_lines,
    require_root,
)

Box = tuple[float, float, float, float]
_PHRASE = re.compile(r"\[/EN#(?P<chain>\d+)(?P<types>(?:/[^\s/]+)+) (?P<phrase>[^\]]*)\]")
_NOT_VISUAL = "0"


class Flickr30kEntities:
    """31,783 photographs with five captions each, and 244,000 phrases in them with boxes.

    Plummer et al., "Flickr30k Entities", ICCV 2015; the splits are its lists of ids. The image's id is its file name.
    A phrase that names nothing visible, or a scene, or has no box is left out and listed: nothing can be pointed at.
    The category of a phrase is its type, such as "people" or "bodyparts".
    Boxes count pixels from 1 and include their last, in the files; here they are edges.

    Args:
        root: folder of ``Sentences``, ``Annotations``, the lists ``train.txt``, ``val.txt``, ``test.txt`` and the
            photographs.
        images: folder of the photographs below ``root``.
    """

    def __init__(self, root: Path | None = None, images: str = "flickr30k-images") -> None:
        self.root, self.images = root, images

    def read(self, images: Path) -> Corpus:
        """List the corpus; ``images`` is not used.

        Raises:
            ValueError: there is no list of a split, or a file is missing or not in its published format.
        """
        root = require_root(self.root, "Flickr30kEntities", "Sentences/, Annotations/, test.txt and the photographs")
        lists = {split: root / f"{split}.txt" for split in SPLITS if (root / f"{split}.txt").is_file()}
        if not lists:
            raise ValueError(f"Flickr30kEntities: {root} has none of the lists train.txt, val.txt, test.txt")
        entries: list[ImageEntry] = []
        captions: list[CaptionEntry] = []
        phrases: list[PhraseEntry] = []
        left_out: list[RejectedEntry] = []
        for split, path in lists.items():
            for number in filter(None, map(str.strip, read_lines(path, "Flickr30kEntities"))):
                image_id = f"{number}.jpg"
                size, boxes = read_boxes(root / "Annotations" / f"{number}.xml")
                entries.append(ImageEntry(image_id, image_id, split, size))
                for line in read_lines(root / "Sentences" / f"{number}.txt", "Flickr30kEntities"):
                    caption = CaptionEntry(len(captions), image_id, plain_sentence(line))
                    captions.append(caption)
                    for chain, types, phrase in marked_phrases(line):
                        if boxes[chain]:
                            found = tuple(boxes[chain])
                            phrases.append(PhraseEntry(image_id, caption.caption_id, phrase, found, types))
                        else:
                            reason = "it names nothing visible" if chain == _NOT_VISUAL else "it has no box"
                            left_out.append(
                                RejectedEntry("phrase", f"{phrase!r} of {image_id}", reason, by_design=True)
                            )
        return Corpus(root / self.images, entries, captions, phrases, left_out)


def plain_sentence(line: str) -> str:
    """The sentence without its marks.

    >>> plain_sentence("[/EN#1/people/clothing A man] in [/EN#2/clothing red] .")
    'A man in red .'
    """
    return _PHRASE.sub(lambda found: found["phrase"], line).strip()


def marked_phrases(line: str) -> Iterator[tuple[str, str, str]]:
    """Chain, types ("people/other") and phrase of every mark in a line of a ``Sentences`` file."""
    return ((found["chain"], found["types"][1:], found["phrase"]) for found in _PHRASE.finditer(line))


def read_boxes(path: Path) -> tuple[tuple[int, int], defaultdict[str, list[Box]]]:
    """Width and height of the image, and the boxes of every chain, of an ``Annotations`` file.

    Raises:
        ValueError: there is no such file, or it is not in its published format.
    """
    if not path.is_file():
        raise ValueError(f"Flickr30kEntities needs {path}: no such file")
    boxes: defaultdict[str, list[Box]] = defaultdict(list)
    try:
        document = ElementTree.parse(path).getroot()
        size = _number(document, "size/width"), _number(document, "size/height")
        for item in document.iter("object"):
            if item.find("bndbox") is not None:
                x0, y0, x1, y1 = (_number(item, f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax"))
                for name in item.iter("name"):
                    boxes[str(name.text)].append((x0 - 1.0, y0 - 1.0, float(x1), float(y1)))
    except (ElementTree.ParseError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not in the format of Flickr30k Entities: {error}") from error
    return size, boxes


def _number(element: ElementTree.Element, path: str) -> int:
    text = element.findtext(path)
    if text is None:
        raise ValueError(f"it has no {path}")
    return int(text)
