"""Small corpora in their published file layouts, without images; the caption of each image is its
own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bifocal.datasets.base import CorpusReader
from bifocal.datasets.corpora import COCO, COCOInstances, RefCOCO, ReferIt, VisualGenome

COUNT, SIZE = 4, {"width": 40, "height": 30}
NUMBERS = range(1, COUNT + 1)
TEXTS = [f"a star number {number}" for number in NUMBERS]
Files = dict[str, Any]


def coco_images() -> list[Any]:
    return [{"id": number, "file_name": f"{number}.jpg", **SIZE} for number in NUMBERS]


def coco_captions() -> dict[str, Any]:
    captions = [
        {"id": number, "image_id": number, "caption": TEXTS[number - 1]} for number in NUMBERS
    ]
    return {"images": coco_images(), "annotations": captions}


def coco_files() -> Files:
    objects = [
        {
            "id": number,
            "image_id": number,
            "category_id": number,
            "iscrowd": 0,
            "bbox": [2, 2, 7, 7],
            "segmentation": [[2, 2, 9, 2, 9, 9, 2, 9]],
        }
        for number in NUMBERS
    ]
    categories = [{"id": number, "name": f"star {number}"} for number in NUMBERS]
    instances = {"images": coco_images(), "annotations": objects, "categories": categories}
    return {
        "annotations/captions_a.json": coco_captions(),
        "annotations/instances_a.json": instances,
    }


def karpathy_files() -> Files:
    images = [
        {
            "filename": f"{number}.jpg",
            "filepath": "train2014",
            "cocoid": number,
            "split": "train",
            "sentences": [{"sentid": number, "raw": TEXTS[number - 1]}],
        }
        for number in NUMBERS
    ]
    return {"dataset_coco.json": {"images": images}}


def genome_files() -> Files:
    images = [
        {"image_id": number, "url": f"http://x/VG_100K/{number}.jpg", **SIZE} for number in NUMBERS
    ]
    regions = [
        {
            "id": number,
            "regions": [{"region_id": number, "phrase": TEXTS[number - 1], "x": 1, "y": 1, **SIZE}],
        }
        for number in NUMBERS
    ]
    objects = [
        {"image_id": number, "objects": [{"object_id": 1, "synsets": [f"star.n.{number}"]}]}
        for number in NUMBERS
    ]
    splits = {"train": list(NUMBERS), "val": [], "test": []}
    return {
        "image_data.json": images,
        "region_descriptions.json": regions,
        "objects.json": objects,
        "densecap_splits.json": splits,
    }


def refcoco_files() -> Files:
    images = [
        {
            "id": number,
            "original_id": number,
            "file_name": f"{number}.jpg",
            "caption": TEXTS[number - 1],
            **SIZE,
        }
        for number in NUMBERS
    ]
    found = [
        {"image_id": number, "category_id": number, "bbox": [1, 1, 5, 5]} for number in NUMBERS
    ]
    categories = [{"id": number, "name": f"star {number}"} for number in NUMBERS]
    return {
        "finetune_refcoco_train.json": {
            "images": images,
            "annotations": found,
            "categories": categories,
        }
    }


def referit_files() -> Files:
    return {
        "referit_bbox.json": {f"{number}_1": [1, 1, 5, 5] for number in NUMBERS},
        "referit_imsize.json": {str(number): [40, 30] for number in NUMBERS},
        "referit_query_train.json": {f"{number}_1": [TEXTS[number - 1]] for number in NUMBERS},
    }


READERS: dict[str, tuple[Callable[[], Files], Callable[[Path], CorpusReader]]] = {
    "COCOInstances": (coco_files, lambda root: COCOInstances(root, "a", 0.0, 0.0)),
    "COCO": (karpathy_files, COCO),
    "VisualGenome": (genome_files, lambda root: VisualGenome(root, objects="objects.json")),
    "RefCOCO": (refcoco_files, RefCOCO),
    "ReferIt": (referit_files, ReferIt),
}


def write(root: Path, files: Files) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        lines = (
            [json.dumps(row) for row in content]
            if name.endswith("jsonl")
            else [json.dumps(content)]
        )
        (root / name).write_text("\n".join(lines))
    (root / "referit_train_imlist.txt").write_text("\n".join(map(str, NUMBERS)))
