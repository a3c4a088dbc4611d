"""PASCAL VOC in its published files: one XML file per image, and lists of images."""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from bifocal.datasets.base import Box, Corpus, ImageEntry, LabelEntry, PhraseEntry
from bifocal.datasets.formats.entries import placed, read_entries
from bifocal.datasets.formats.files import find_lists, read_names, read_xml, require_root
from bifocal.datasets.splits import check_fractions, draw_splits

CLASSES = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)
TASK = "objects"


class VOC:
    """Photographs with the objects of 20 classes, without captions.

    Everingham et al., "The PASCAL visual object classes (VOC) challenge", IJCV 2010; the thesis
    uses VOC 2007. The labels of the task "objects" are 1 for a class in the image and 0 for other
    classes. A class that occurs only in objects marked as difficult is null: present, but excluded
    from metrics, as in the challenge. The objects of a class are one phrase with one box each.

    Args:
        root: folder ``VOC2007`` with ``Annotations/``, ``ImageSets/Main/`` and ``JPEGImages/``.
        train, test: names of lists in ``ImageSets/Main``; a split without its list is empty.
        val: another list, or the fraction of the images of ``train`` that are drawn for this split.
        seed: seed of the draw.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        train: str = "train",
        val: str | float = "val",
        test: str = "test",
        seed: int = 0,
    ) -> None:
        check_fractions("VOC", val, test, "the name of a list", "images")
        self.root, self.seed = root, seed
        self.subsets: dict[str, str | float] = {"train": train, "val": val, "test": test}
        self.lists = {
            split: f"{name}.txt" for split, name in self.subsets.items() if isinstance(name, str)
        }

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(self.root, "VOC", "Annotations/, ImageSets/Main/ and JPEGImages/")
        main, corpus = root / "ImageSets" / "Main", Corpus(root / "JPEGImages")

        def read(split: str, image_id: str) -> ImageEntry:
            tree = read_xml(root / "Annotations" / f"{image_id}.xml", "VOC")
            size = int(_read_text(tree, "size/width")), int(_read_text(tree, "size/height"))
            objects = read_entries(
                "phrase",
                placed(f"{image_id}.xml", tree.iter("object")),
                _read_object,
                corpus.rejected,
            )
            by_class: dict[str, list[_Object]] = defaultdict(list)
            for item in objects:
                by_class[item.name].append(item)
            corpus.phrases.extend(
                PhraseEntry(image_id, None, name, tuple(item.box for item in items), name)
                for name, items in by_class.items()
            )
            corpus.labels.extend(
                LabelEntry(image_id, TASK, name, _label_value(by_class[name])) for name in CLASSES
            )
            return ImageEntry(image_id, f"{image_id}.jpg", split, size)

        for split, path in find_lists(main, self.lists, "VOC").items():
            names = ((name, name) for name in read_names(path, "VOC"))
            corpus.images += read_entries("image", names, partial(read, split), corpus.rejected)
        drawn = draw_splits(
            {entry.image_id: entry.split for entry in corpus.images}, self.subsets, self.seed
        )
        corpus.images = [replace(entry, split=drawn[entry.image_id]) for entry in corpus.images]
        return corpus


class _Object(NamedTuple):
    name: str
    difficult: bool
    box: Box


def _label_value(objects: list[_Object]) -> float | None:
    if not objects:
        return 0.0
    return None if all(item.difficult for item in objects) else 1.0


def _read_object(item: ElementTree.Element) -> _Object:
    name = _read_text(item, "name")
    if name not in CLASSES:
        raise ValueError(f"unknown class {name!r}, expected one of {', '.join(CLASSES)}")
    # VOC counts pixels from 1 and includes the last one.
    x0, y0, x1, y1 = (
        float(_read_text(item, f"bndbox/{corner}")) for corner in ("xmin", "ymin", "xmax", "ymax")
    )
    return _Object(name, item.findtext("difficult", "0").strip() == "1", (x0 - 1, y0 - 1, x1, y1))


def _read_text(element: ElementTree.Element, path: str) -> str:
    text = element.findtext(path)
    if text is None or not text.strip():
        raise ValueError(f"no {path}")
    return text.strip()
