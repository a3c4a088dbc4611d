"""PASCAL VOC as it ships: an XML file an image, and lists of images."""

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from bifocal.datasets.base import Corpus, ImageEntry, LabelEntry, PhraseEntry, read_lines, require_root

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
TASK = "objects"


class VOC:
    """Photographs with the objects of 20 classes in them; no captions.

    Everingham et al., "The PASCAL visual object classes (VOC) challenge", IJCV 2010; the thesis uses that of 2007. The
    labels, of the task "objects", are 1 for a class that is in the image and 0 for one that is not. A class of which
    there are only objects marked as difficult is null: present, but not measured, as in the challenge. The objects of a
    class are one phrase with a box each.

    Args:
        root: the folder ``VOC2007``, of ``Annotations/``, ``ImageSets/Main/`` and ``JPEGImages/``.
        train, val, test: lists in ``ImageSets/Main``; one that is not there leaves its split empty.
    """

    def __init__(self, root: Path | None = None, train: str = "train", val: str = "val", test: str = "test") -> None:
        self.root = root
        self.lists = {"train": train, "val": val, "test": test}

    def read(self, images: Path) -> Corpus:
        """List the corpus; ``images`` is not used.

        Raises:
            ValueError: no list is there, an annotation is missing or is not VOC's XML, or has an unknown class.
        """
        root = require_root(self.root, "VOC", "Annotations/, ImageSets/Main/ and JPEGImages/")
        main = root / "ImageSets" / "Main"
        present = {
            split: main / f"{name}.txt" for split, name in self.lists.items() if (main / f"{name}.txt").is_file()
        }
        if not present:
            raise ValueError(f"VOC: {main} has none of the lists {', '.join(self.lists.values())}")
        entries: list[ImageEntry] = []
        phrases: list[PhraseEntry] = []
        labels: list[LabelEntry] = []
        for split, path in present.items():
            for line in read_lines(path, "VOC"):
                image_id = line.strip()
                if not image_id:
                    continue
                size, objects = _annotation(root / "Annotations" / f"{image_id}.xml")
                entries.append(ImageEntry(image_id, f"{image_id}.jpg", split, size))
                found: dict[str, list[_Object]] = defaultdict(list)
                for item in objects:
                    found[item.name].append(item)
                phrases += [
                    PhraseEntry(image_id, None, name, tuple(item.box for item in items), name)
                    for name, items in found.items()
                ]
                labels += [LabelEntry(image_id, TASK, name, _value(found[name])) for name in CLASSES]
        return Corpus(root / "JPEGImages", entries, (), phrases, labels=labels)


class _Object(NamedTuple):
    name: str
    difficult: bool
    box: tuple[float, float, float, float]


def _value(objects: list[_Object]) -> float | None:
    if not objects:
        return 0.0
    return None if all(item.difficult for item in objects) else 1.0


def _annotation(path: Path) -> tuple[tuple[int, int], list[_Object]]:
    """Width and height in pixels, and the objects of an image."""
    if not path.is_file():
        raise ValueError(f"VOC needs {path}: no such file")
    try:
        tree = ElementTree.parse(path).getroot()
        size = int(_text(tree, "size/width")), int(_text(tree, "size/height"))
        objects = [_object(item) for item in tree.iter("object")]
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"{path} is not an annotation of VOC: {error}") from error
    return size, objects


def _object(item: ElementTree.Element) -> _Object:
    name = _text(item, "name")
    if name not in CLASSES:
        raise ValueError(f"an object is a {name!r}, expected one of {', '.join(CLASSES)}")
    # VOC counts pixels from 1, and the last one is inside.
    x0, y0, x1, y1 = (float(_text(item, f"bndbox/{corner}")) for corner in ("xmin", "ymin", "xmax", "ymax"))
    return _Object(name, item.findtext("difficult", "0").strip() == "1", (x0 - 1, y0 - 1, x1, y1))


def _text(element: ElementTree.Element, path: str) -> str:
    text = element.findtext(path)
    if text is None or not text.strip():
        raise ValueError(f"it has no {path}")
    return text.strip()
