"""Karpathy's ``dataset_coco.json`` and ``dataset_flickr30k.json``, with the photographs in their
published folders."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.rehearsals.papers.pictures import Picture

RESTVAL_EVERY = 8
"""One training image of COCO in so many is of the split restval."""


def coco_id(picture: Picture) -> int:
    """Return the published number of a picture in COCO."""
    return 100_000 + 7 * picture.number


def coco_file(picture: Picture) -> tuple[str, str]:
    """Return folder and file name of a picture in COCO."""
    subset = (
        "train2014" if picture.split == "train" and picture.number % RESTVAL_EVERY else "val2014"
    )
    return subset, f"COCO_{subset}_{coco_id(picture):012d}.jpg"


def flickr_number(picture: Picture) -> int:
    """Return the published number of a picture in Flickr30k, the stem of its file name."""
    return 1_000_000_000 + 37 * picture.number


def write_coco(pictures: Sequence[Picture], root: Path) -> None:
    """Write ``dataset_coco.json``, ``train2014/`` and ``val2014/``."""

    def describe(picture: Picture) -> dict[str, Any]:
        folder, name = coco_file(picture)
        picture.save(root / folder / name)
        restval = picture.split == "train" and folder == "val2014"
        split = "restval" if restval else picture.split
        return {"filepath": folder, "filename": name, "cocoid": coco_id(picture), "split": split}

    _write(pictures, root / "dataset_coco.json", "coco", describe)


def write_flickr30k(pictures: Sequence[Picture], root: Path) -> None:
    """Write ``dataset_flickr30k.json`` and ``flickr30k-images/``."""

    def describe(picture: Picture) -> dict[str, Any]:
        name = f"{flickr_number(picture)}.jpg"
        picture.save(root / "flickr30k-images" / name)
        return {"filename": name, "split": picture.split}

    _write(pictures, root / "dataset_flickr30k.json", "flickr30k", describe)


def _write(
    pictures: Sequence[Picture],
    path: Path,
    dataset: str,
    describe: Callable[[Picture], dict[str, Any]],
) -> None:
    images, sentid = [], 0
    for imgid, picture in enumerate(pictures):
        sentences = []
        for sentence in picture.sentences:
            tokens = re.findall(r"\w+", sentence.text.lower())
            sentences.append(
                {"tokens": tokens, "raw": sentence.text, "imgid": imgid, "sentid": sentid}
            )
            sentid += 1
        entry = {
            "imgid": imgid,
            "sentids": [sentence["sentid"] for sentence in sentences],
            "sentences": sentences,
        }
        images.append(describe(picture) | entry)
    path.write_text(json.dumps({"images": images, "dataset": dataset}))
