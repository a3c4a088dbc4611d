"""Visual Genome: images, region descriptions, DenseCap's splits, ``VG_100K/`` and
``VG_100K_2/``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bifocal.datasets.base import SPLITS
from bifocal.datasets.scenes.captions import ON
from tests.rehearsals.papers.layouts.coco import write_captions
from tests.rehearsals.papers.layouts.karpathy import coco_file, coco_id
from tests.rehearsals.papers.pictures import Picture

URL = "https://cs.stanford.edu/people/rak248"


def genome_id(picture: Picture) -> int:
    """Return the published number of a picture in Visual Genome; it differs from its number in
    COCO."""
    return 2_300_000 + 3 * picture.number


def write_visual_genome(pictures: Sequence[Picture], root: Path) -> None:
    """Write the corpus, and the captions of its photographs that are also in COCO's ``val2014``."""
    data, regions = [], []
    for picture in pictures:
        folder = "VG_100K_2" if picture.number % 2 else "VG_100K"
        picture.save(root / folder / f"{genome_id(picture)}.jpg")
        width, height = picture.size
        data.append(
            {
                "image_id": genome_id(picture),
                "url": f"{URL}/{folder}/{genome_id(picture)}.jpg",
                "width": width,
                "height": height,
                "coco_id": coco_id(picture),
                "flickr_id": None,
            }
        )
        regions.append({"id": genome_id(picture), "regions": _regions(picture)})
    splits = {
        name: [genome_id(picture) for picture in pictures if picture.split == name]
        for name in SPLITS
    }
    for name, value in (
        ("image_data", data),
        ("region_descriptions", regions),
        ("densecap_splits", splits),
    ):
        (root / f"{name}.json").write_text(json.dumps(value))
    shared = [picture for picture in pictures if coco_file(picture)[0] == "val2014"]
    write_captions(shared, root / "captions_val2014.json")


def _regions(picture: Picture) -> list[dict[str, Any]]:
    """Return a description of each object or group, and of the background."""
    width, height = picture.size
    described: dict[str, tuple[float, ...]] = {}
    for sentence in picture.sentences:
        for phrase, group in sentence.phrases:
            described.setdefault(phrase, picture.box(group[0]))
    # A box of the whole image would be hit by every point.
    described[ON[picture.scene.background][0]] = (
        0.0,
        float(height - height // 4),
        float(width),
        float(height),
    )
    return [
        {
            "region_id": 1000 * picture.number + number,
            "image_id": genome_id(picture),
            "phrase": phrase,
            "x": x0,
            "y": y0,
            "width": x1 - x0,
            "height": y1 - y0,
        }
        for number, (phrase, (x0, y0, x1, y1)) in enumerate(described.items())
    ]
