"""COCO's own files: ``annotations/captions_*.json`` and ``annotations/instances_*.json``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bifocal.datasets.scenes.layout import SHAPES
from tests.rehearsals.papers.layouts.karpathy import coco_file, coco_id
from tests.rehearsals.papers.pictures import Picture


def write_annotations(pictures: Sequence[Picture], root: Path) -> None:
    """Write captions and instances of ``train2014`` and ``val2014``; the photographs belong to
    Karpathy's split."""
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    for subset in ("train2014", "val2014"):
        chosen = [picture for picture in pictures if coco_file(picture)[0] == subset]
        write_captions(chosen, root / "annotations" / f"captions_{subset}.json")
        _dump(
            root / "annotations" / f"instances_{subset}.json",
            {
                "images": [_image(picture) for picture in chosen],
                "annotations": [entry for picture in chosen for entry in _instances(picture)],
                "categories": [
                    {"id": number, "name": name} for number, name in enumerate(SHAPES, start=1)
                ],
            },
        )


def write_captions(pictures: Sequence[Picture], path: Path) -> None:
    """Write a captions file of the pictures."""
    captions = [
        {
            "id": 1000 * picture.number + number,
            "image_id": coco_id(picture),
            "caption": sentence.text,
        }
        for picture in pictures
        for number, sentence in enumerate(picture.sentences)
    ]
    _dump(path, {"images": [_image(picture) for picture in pictures], "annotations": captions})


def _image(picture: Picture) -> dict[str, Any]:
    width, height = picture.size
    return {
        "id": coco_id(picture),
        "file_name": coco_file(picture)[1],
        "width": width,
        "height": height,
    }


def _instances(picture: Picture) -> list[dict[str, Any]]:
    entries = []
    for number, item in enumerate(picture.objects()):
        x0, y0, x1, y1 = picture.box(item)
        entries.append(
            {
                "id": 100 * picture.number + number,
                "image_id": coco_id(picture),
                "category_id": 1 + SHAPES.index(item.appearance.shape),
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": (x1 - x0) * (y1 - y0),
                "iscrowd": 0,
                "segmentation": [[x0, y0, x1, y0, x1, y1, x0, y1]],
            }
        )
    return entries


def _dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
