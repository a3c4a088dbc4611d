"""COCO as it ships: ``captions_*.json`` and ``instances_*.json``."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry, PhraseEntry, RejectedEntry, require_root
from bifocal.datasets.formats.karpathy import read_json


class COCOInstances:
    """Photographs with captions, and the names of their objects' categories as phrases with boxes.

    Lin et al., "Microsoft COCO: common objects in context", ECCV 2014. All instances of a category in an image are one
    phrase ("person") with a box each and no caption_id. A crowd annotation (``iscrowd`` 1) is one box around many that
    were not told apart, so it is no instance: it is left out and listed.

    The part ``train2017`` is the files ``annotations/captions_train2017.json`` and
    ``annotations/instances_train2017.json`` and the folder ``train2017/``.

    Args:
        root: folder of ``annotations`` and of the image folders.
        train: the part to train on.
        val: a part, or the fraction of the images of ``train``, drawn with the seed, that become this split instead.
        test: as ``val``. COCO publishes no annotations of its own test images.
        seed: of the draw.
    """

    def __init__(
        self,
        root: Path | None = None,
        train: str = "train2017",
        val: str | float = "val2017",
        test: str | float = 0.0,
        seed: int = 0,
    ) -> None:
        fractions = [part for part in (val, test) if not isinstance(part, str)]
        if any(fraction < 0 for fraction in fractions) or sum(fractions) >= 1:
            raise ValueError(
                f"COCOInstances: val is {val!r} and test {test!r}; expected the name of a part, such as 'val2017', "
                "or a fraction of train's images in [0, 1), together less than 1"
            )
        self.root, self.seed = root, seed
        self.parts: dict[str, str | float] = {"train": train, "val": val, "test": test}

    def read(self, images: Path) -> Corpus:
        """List the corpus; ``images`` is not used.

        Raises:
            ValueError: a file is missing or not in COCO's format.
        """
        root = require_root(self.root, "COCOInstances", "annotations/ and the image folders")
        parts = [_read_part(root, part, split) for split, part in self.parts.items() if isinstance(part, str)]
        corpus = Corpus(
            root,
            [image for part in parts for image in part.images],
            [caption for part in parts for caption in part.captions],
            [phrase for part in parts for phrase in part.phrases],
            [refusal for part in parts for refusal in part.left_out],
        )
        return replace(corpus, images=self._divided(corpus.images))

    def _divided(self, images: Sequence[ImageEntry]) -> list[ImageEntry]:
        """``images`` with the fractions of train drawn into val and test, whatever their order in the file."""
        ids = sorted(image.image_id for image in images if image.split == "train")
        drawn = np.random.default_rng(self.seed).permutation(len(ids))
        splits: dict[str, str] = {}
        start = 0
        for split, part in self.parts.items():
            if not isinstance(part, str):
                end = start + round(part * len(ids))
                splits |= {ids[place]: split for place in drawn[start:end]}
                start = end
        return [replace(image, split=splits.get(image.image_id, image.split)) for image in images]


def _read_part(root: Path, part: str, split: str) -> Corpus:
    annotations = root / "annotations"
    captions = read_json(annotations / f"captions_{part}.json", "COCOInstances", "images", "annotations")
    path = annotations / f"instances_{part}.json"
    instances = read_json(path, "COCOInstances", "annotations", "categories")
    try:
        images = [
            ImageEntry(str(item["id"]), f"{part}/{item['file_name']}", split, (int(item["width"]), int(item["height"])))
            for item in captions["images"]
        ]
        sentences = [
            CaptionEntry(int(item["id"]), str(item["image_id"]), str(item["caption"]))
            for item in captions["annotations"]
        ]
        return Corpus(root, images, sentences, *_phrases(instances))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{annotations}: captions_{part}.json or {path.name} is not in COCO's format: "
            f"{type(error).__name__} {error}"
        ) from error


def _phrases(instances: dict[str, Any]) -> tuple[list[PhraseEntry], list[RejectedEntry]]:
    names = {category["id"]: str(category["name"]) for category in instances["categories"]}
    boxes: dict[tuple[str, str], list[tuple[float, float, float, float]]] = defaultdict(list)
    crowds = []
    for item in instances["annotations"]:
        image_id, name = str(item["image_id"]), names[item["category_id"]]
        if item["iscrowd"]:
            crowds.append(RejectedEntry("phrase", f"{name!r} of {image_id}", "a crowd, not told apart", by_design=True))
        else:
            x, y, width, height = (float(value) for value in item["bbox"])
            boxes[image_id, name].append((x, y, x + width, y + height))
    return [PhraseEntry(image_id, None, name, tuple(found), name) for (image_id, name), found in boxes.items()], crowds
