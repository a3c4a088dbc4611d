"""Labeled corpora: LaMem's lists, MediaEval's CSV files, PASCAL VOC's XML files and lists,
ImageNet's folders."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from bifocal.datasets.base import SPLITS
from bifocal.datasets.corpora.voc import CLASSES
from bifocal.datasets.scenes.layout import COLORS, SHAPES
from tests.rehearsals.papers.pictures import Picture


def memorability(picture: Picture) -> float:
    """Return a score in [0, 1] that grows with the size and the warmth of a picture's objects."""
    items = picture.objects()
    area = sum(item.radius**2 for item in items) / 0.2
    warmth = float(np.mean([list(COLORS).index(item.appearance.color) < 3 for item in items]))
    return float(np.clip(0.35 + 0.4 * min(area, 1.0) + 0.25 * warmth, 0, 1))


def write_lamem(pictures: Sequence[Picture], root: Path) -> None:
    """Write ``splits/{split}_1.txt`` and ``images/``."""
    (root / "splits").mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        lines = []
        for picture in (picture for picture in pictures if picture.split == split):
            name = f"{picture.number:08d}.jpg"
            picture.save(root / "images" / name)
            lines.append(f"{name} {memorability(picture):.6f}")
        (root / "splits" / f"{split}_1.txt").write_text("\n".join(lines) + "\n")


def write_mediaeval(pictures: Sequence[Picture], root: Path) -> None:
    """Write both CSV files, ``frames/`` with one frame of each video, and half of the training
    pictures as LaMem's."""
    (root / "frames").mkdir(parents=True, exist_ok=True)
    half = sum(picture.split == "train" for picture in pictures) // 2
    of_lamem = [picture for picture in pictures if picture.split == "train"][:half]
    videos = [picture for picture in pictures if picture not in of_lamem]
    for name, test in (("dev", False), ("test", True)):
        lines = ["video,short-term_memorability,long-term_memorability"]
        for picture in (picture for picture in videos if (picture.split == "test") == test):
            picture.save(root / "frames" / f"video{picture.number}-1.jpg")
            lines.append(
                f"video{picture.number}.webm,{memorability(picture):.6f},{memorability(picture):.6f}"
            )
        (root / f"ground-truth_{name}-set.csv").write_text("\n".join(lines) + "\n")
    write_lamem(of_lamem, root / "lamem")


def write_voc(pictures: Sequence[Picture], root: Path) -> None:
    """Write ``Annotations/``, ``ImageSets/Main/`` and ``JPEGImages/``; each of ten shapes has the
    name of a class."""
    for folder in ("Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        numbers = [f"{picture.number:06d}" for picture in pictures if picture.split == split]
        (root / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(numbers) + "\n")
    lists = (root / "ImageSets" / "Main" / f"{split}.txt" for split in ("train", "val"))
    (root / "ImageSets" / "Main" / "trainval.txt").write_text(
        "".join(path.read_text() for path in lists)
    )
    for picture in pictures:
        picture.save(root / "JPEGImages" / f"{picture.number:06d}.jpg")
        document = ElementTree.Element("annotation")
        size = ElementTree.SubElement(document, "size")
        for name, value in zip(("width", "height", "depth"), (*picture.size, 3), strict=True):
            ElementTree.SubElement(size, name).text = str(value)
        for item in picture.objects():
            entry = ElementTree.SubElement(document, "object")
            ElementTree.SubElement(entry, "name").text = CLASSES[
                SHAPES.index(item.appearance.shape)
            ]
            ElementTree.SubElement(entry, "difficult").text = "0"
            box = ElementTree.SubElement(entry, "bndbox")
            x0, y0, x1, y1 = (int(edge) for edge in picture.box(item))
            # Pixels count from 1, and the last one is inside.
            for name, value in zip(
                ("xmin", "ymin", "xmax", "ymax"), (x0 + 1, y0 + 1, x1, y1), strict=True
            ):
                ElementTree.SubElement(box, name).text = str(value)
        ElementTree.ElementTree(document).write(root / "Annotations" / f"{picture.number:06d}.xml")


def write_class_folders(pictures: Sequence[Picture], root: Path) -> None:
    """Write ``{split}/{class}/`` as ImageNet is unpacked; the class is the background."""
    for picture in pictures:
        picture.save(root / picture.split / picture.scene.background / f"{picture.number}.jpg")
