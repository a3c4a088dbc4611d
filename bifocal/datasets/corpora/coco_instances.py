"""COCO in its published files: ``captions_*.json`` and ``instances_*.json``."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bifocal.datasets.base import Box, CaptionEntry, Corpus, ImageEntry, PhraseEntry, RejectedEntry
from bifocal.datasets.formats.files import read_json, require_root
from bifocal.datasets.formats.masks import Segmentation, union_mask
from bifocal.datasets.splits import check_fractions, draw_splits


class COCOInstances:
    """Photographs with captions; the categories of their objects are phrases with boxes and masks.

    Lin et al., "Microsoft COCO: common objects in context", ECCV 2014. All instances of a category in an image are one
    phrase ("person") with one box each and without caption_id. Its mask is the union of their segmentations.

    A crowd annotation (``iscrowd`` 1) is one region of many objects that are not separated. Its pixels belong to the
    category's mask, but its box is not the box of an object: it is excluded and listed.

    The subset ``train2017`` consists of ``annotations/captions_train2017.json``,
    ``annotations/instances_train2017.json`` and the folder ``train2017/``.

    Args:
        root: folder of ``annotations`` and of the image folders.
        train: subset for training.
        val: subset, or fraction of the images of ``train`` that are drawn for this split.
        test: as ``val``. COCO does not publish annotations of its own test images.
        seed: seed of the draw.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        train: str = "train2017",
        val: str | float = "val2017",
        test: str | float = 0.0,
        seed: int = 0,
    ) -> None:
        check_fractions("COCOInstances", val, test, "the name of a subset, such as 'val2017'", "images")
        self.root, self.seed = root, seed
        self.subsets: dict[str, str | float] = {"train": train, "val": val, "test": test}

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(self.root, "COCOInstances", "annotations/ and the image folders")
        subsets = [_read_subset(root, name, split) for split, name in self.subsets.items() if isinstance(name, str)]
        images = [image for subset in subsets for image in subset.images]
        splits = draw_splits({image.image_id: image.split for image in images}, self.subsets, self.seed)
        return Corpus(
            root,
            [ImageEntry(image.image_id, image.path, splits[image.image_id], image.size) for image in images],
            [caption for subset in subsets for caption in subset.captions],
            [phrase for subset in subsets for phrase in subset.phrases],
            [entry for subset in subsets for entry in subset.excluded],
        )


def _read_subset(root: Path, name: str, split: str) -> Corpus:
    annotations = root / "annotations"
    captions = read_json(annotations / f"captions_{name}.json", "COCOInstances", "images", "annotations")
    path = annotations / f"instances_{name}.json"
    try:
        images = [
            ImageEntry(str(item["id"]), f"{name}/{item['file_name']}", split, (int(item["width"]), int(item["height"])))
            for item in captions["images"]
        ]
        sentences = [
            CaptionEntry(int(item["id"]), str(item["image_id"]), str(item["caption"]))
            for item in captions["annotations"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{annotations}: captions_{name}.json is not in COCO's format: {type(error).__name__} {error}"
        ) from error
    return Corpus(root, images, sentences, *read_instances(path, {image.image_id for image in images}))


def read_instances(path: Path, image_ids: Collection[str]) -> tuple[list[PhraseEntry], list[RejectedEntry]]:
    """Return the objects of these images in a file of instances: phrases, and excluded annotations."""
    content = read_json(path, "COCOInstances", "images", "annotations", "categories")
    try:
        sizes = {str(item["id"]): (int(item["width"]), int(item["height"])) for item in content["images"]}
        content["annotations"] = [item for item in content["annotations"] if str(item["image_id"]) in image_ids]
        return _read_phrases(content, sizes)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not in COCO's format: {type(error).__name__} {error}") from error


@dataclass
class _Objects:
    boxes: list[Box] = field(default_factory=list)
    segmentations: list[Segmentation] = field(default_factory=list)


def _read_phrases(
    instances: dict[str, Any], sizes: dict[str, tuple[int, int]]
) -> tuple[list[PhraseEntry], list[RejectedEntry]]:
    names = {category["id"]: str(category["name"]) for category in instances["categories"]}
    objects: dict[tuple[str, str], _Objects] = defaultdict(_Objects)
    excluded = []
    for item in instances["annotations"]:
        image_id, name = str(item["image_id"]), names[item["category_id"]]
        objects[image_id, name].segmentations.append(item.get("segmentation") or [])
        if item["iscrowd"]:
            reason = "crowd annotation: objects are not separated"
            excluded.append(RejectedEntry("phrase", f"{name!r} of {image_id}", reason, intentional=True))
        else:
            x, y, width, height = (float(value) for value in item["bbox"])
            objects[image_id, name].boxes.append((x, y, x + width, y + height))
    phrases = [
        PhraseEntry(image_id, None, name, tuple(group.boxes), name, _mask(image_id, name, group, sizes))
        for (image_id, name), group in objects.items()
        if group.boxes
    ]
    return phrases, excluded


def _mask(image_id: str, name: str, group: _Objects, sizes: dict[str, tuple[int, int]]) -> str | None:
    if image_id not in sizes:
        return None  # the phrase is rejected later: its image is not in the dataset
    try:
        return union_mask(group.segmentations, *sizes[image_id])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"segmentation of {name!r} in image {image_id}: {type(error).__name__} {error}") from error
