"""Flickr30k Entities: ``Sentences/*.txt``, ``Annotations/*.xml``, lists of splits and the
photographs of Flickr30k."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from bifocal.datasets.base import SPLITS
from tests.rehearsals.papers.layouts.karpathy import flickr_number
from tests.rehearsals.papers.pictures import Picture


def write_flickr30k_entities(pictures: Sequence[Picture], root: Path) -> None:
    """Write the corpus; a group of objects is one coreference chain, and the background is a scene
    without a box."""
    for folder in ("Sentences", "Annotations"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        numbers = [str(flickr_number(picture)) for picture in pictures if picture.split == split]
        (root / f"{split}.txt").write_text("\n".join(numbers) + "\n")
    for picture in pictures:
        number = flickr_number(picture)
        picture.save(root / "flickr30k-images" / f"{number}.jpg")
        chains = {
            group: str(10 * picture.number + index)
            for index, group in enumerate(picture.scene.groups, start=1)
        }
        lines = []
        for sentence in picture.sentences:
            line = re.sub(r"([.,;])", r" \1", sentence.text)
            for phrase, group in sentence.phrases:
                line = line.replace(
                    phrase, f"[/EN#{chains[group]}/{group[0].appearance.shape} {phrase}]", 1
                )
            lines.append(line)
        (root / "Sentences" / f"{number}.txt").write_text("\n".join(lines) + "\n")
        _write_boxes(
            picture,
            {chain: group for group, chain in chains.items()},
            root / "Annotations" / f"{number}.xml",
        )


def _write_boxes(picture: Picture, chains: dict, path: Path) -> None:
    document = ElementTree.Element("annotation")
    ElementTree.SubElement(document, "filename").text = f"{path.stem}.jpg"
    size = ElementTree.SubElement(document, "size")
    for name, value in zip(("width", "height", "depth"), (*picture.size, 3), strict=True):
        ElementTree.SubElement(size, name).text = str(value)
    for chain, group in chains.items():
        for item in group:
            entry = ElementTree.SubElement(document, "object")
            ElementTree.SubElement(entry, "name").text = chain
            box = ElementTree.SubElement(entry, "bndbox")
            x0, y0, x1, y1 = (int(edge) for edge in picture.box(item))
            # Pixels count from 1, and the last one is inside.
            for name, value in zip(
                ("xmin", "ymin", "xmax", "ymax"), (x0 + 1, y0 + 1, x1, y1), strict=True
            ):
                ElementTree.SubElement(box, name).text = str(value)
    scene = ElementTree.SubElement(document, "object")
    ElementTree.SubElement(scene, "name").text = str(10 * picture.number)
    ElementTree.SubElement(scene, "scene").text = "1"
    ElementTree.SubElement(scene, "nobndbox").text = "1"
    ElementTree.ElementTree(document).write(path)
