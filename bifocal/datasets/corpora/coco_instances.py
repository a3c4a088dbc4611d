"""COCO in its published files: ``captions_*.json`` and ``instances_*.json``."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bifocal.datasets.base import Box, CaptionEntry, Corpus, ImageEntry, PhraseEntry, RejectedEntry
from bifocal.datasets.formats.entries import (
    placed,
    read_box,
    read_entries,
    read_id,
    read_size,
    read_text,
    read_whole,
)
from bifocal.datasets.formats.files import read_json, require_root
from bifocal.datasets.formats.masks import Mask, Segmentation, encode_mask, read_mask
from bifocal.datasets.splits import check_fractions, draw_splits


class COCOInstances:
    """Photographs with captions; the categories of their objects are phrases with boxes and masks.

    Lin et al., "Microsoft COCO: common objects in context", ECCV 2014. All instances of a category
    in an image are one phrase ("person") with one box each and without caption_id. Its mask is the
    union of their segmentations.

    A crowd annotation (``iscrowd`` 1) is one region of many objects that are not separated. Its
    pixels belong to the category's mask, but its box is not the box of an object: it is excluded
    and listed.

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
        check_fractions(
            "COCOInstances", val, test, "the name of a subset, such as 'val2017'", "images"
        )
        self.root, self.seed = root, seed
        self.subsets: dict[str, str | float] = {"train": train, "val": val, "test": test}

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(self.root, "COCOInstances", "annotations/ and the image folders")
        subsets = [
            _read_subset(root, name, split)
            for split, name in self.subsets.items()
            if isinstance(name, str)
        ]
        images = [image for subset in subsets for image in subset.images]
        splits = draw_splits(
            {image.image_id: image.split for image in images}, self.subsets, self.seed
        )
        return Corpus(
            root,
            [
                ImageEntry(image.image_id, image.path, splits[image.image_id], image.size)
                for image in images
            ],
            [caption for subset in subsets for caption in subset.captions],
            [phrase for subset in subsets for phrase in subset.phrases],
            [entry for subset in subsets for entry in subset.excluded],
            rejected=[entry for subset in subsets for entry in subset.rejected],
        )


def _read_subset(root: Path, name: str, split: str) -> Corpus:
    path = root / "annotations" / f"captions_{name}.json"
    content = read_json(path, "COCOInstances", "images", "annotations")
    corpus = Corpus(root)
    corpus.images += read_entries(
        "image",
        placed(path.name, content["images"]),
        lambda item: ImageEntry(
            read_id(item["id"]), f"{name}/{read_text(item['file_name'])}", split, read_size(item)
        ),
        corpus.rejected,
    )
    corpus.captions += read_coco_captions(path.name, content["annotations"], corpus.rejected)
    add_instances(corpus, path.with_name(f"instances_{name}.json"))
    return corpus


def read_coco_captions(
    file: str, records: Any, rejected: list[RejectedEntry]
) -> list[CaptionEntry]:
    """Return the captions in the list ``annotations`` of a file of captions."""
    return read_entries(
        "caption",
        placed(file, records),
        lambda item: CaptionEntry(
            read_whole(item["id"]), read_id(item["image_id"]), read_text(item["caption"])
        ),
        rejected,
    )


class _Object(NamedTuple):
    place: str
    box: Box | None  # None of a crowd
    segmentation: Segmentation


def add_instances(corpus: Corpus, path: Path) -> None:
    """Add the objects of the images in a file of instances: phrases, excluded and broken
    annotations."""
    content = read_json(path, "COCOInstances", "images", "annotations", "categories")
    image_ids, rejected = {image.image_id for image in corpus.images}, corpus.rejected
    groups: dict[tuple[str, str], list[_Object]] = defaultdict(list)
    images = placed(f"{path.name}, images", content["images"])
    sizes = dict(
        read_entries(
            "phrase", images, lambda item: (read_id(item["id"]), read_size(item)), rejected
        )
    )
    names = category_names(path, content, rejected)

    def read(record: tuple[str, Any]) -> None:
        place, item = record
        image_id, category = read_id(item["image_id"]), read_id(item["category_id"])
        if image_id not in image_ids:
            return
        if category not in names:
            raise ValueError(f"no category has the category_id {category}")
        name, is_crowd = names[category], read_whole(item.get("iscrowd") or 0)
        if is_crowd:
            corpus.exclude(
                "phrase", f"{name!r} of {image_id}", "crowd annotation: objects are not separated"
            )
        box = None if is_crowd else read_box(item["bbox"])
        groups[image_id, name].append(_Object(place, box, item.get("segmentation") or []))

    records = placed(path.name, content["annotations"])
    read_entries("phrase", ((place, (place, item)) for place, item in records), read, rejected)
    found = [_phrase(*key, objects, sizes.get(key[0]), rejected) for key, objects in groups.items()]
    corpus.phrases += [phrase for phrase in found if phrase is not None]


def category_names(
    path: Path, content: Mapping[str, Any], rejected: list[RejectedEntry]
) -> dict[str, str]:
    """Return the names of COCO's categories by their ids."""
    records = placed(f"{path.name}, categories", content["categories"])
    return dict(
        read_entries(
            "phrase", records, lambda item: (read_id(item["id"]), read_text(item["name"])), rejected
        )
    )


def _phrase(
    image_id: str,
    name: str,
    objects: Sequence[_Object],
    size: tuple[int, int] | None,
    rejected: list[RejectedEntry],
) -> PhraseEntry | None:
    """Return the phrase of a category in an image, without objects whose segmentation cannot be
    read."""
    masks: list[Mask] = []

    def read(item: _Object) -> _Object:
        if item.segmentation and size is not None:
            masks.append(read_mask(item.segmentation, *size))
        return item

    kept = read_entries("phrase", ((item.place, item) for item in objects), read, rejected)
    boxes = tuple(item.box for item in kept if item.box is not None)
    mask = encode_mask(np.logical_or.reduce(masks)) if masks and len(masks) == len(kept) else None
    return PhraseEntry(image_id, None, name, boxes, name, mask) if boxes else None
