"""Published region features: VSE++'s and SCAN's arrays, and bottom-up attention's TSV files."""

import base64
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tests.rehearsals.papers.layouts.karpathy import flickr_number
from tests.rehearsals.papers.pictures import Picture, region_features

REGIONS, DIM = 10, 256
"""Regions per image and dimension: 36 and 2,048 in the published files."""
NAMES = {"train": "train", "val": "dev", "test": "test"}


def write_precomputed(pictures: Sequence[Picture], root: Path) -> None:
    """Write SCAN's ``{split}_ims.npy``, ``{split}_caps.txt`` and ``{split}_ids.txt``, with an id
    per caption."""
    root.mkdir(parents=True, exist_ok=True)
    for split, name in NAMES.items():
        chosen = [picture for picture in pictures if picture.split == split]
        np.save(
            root / f"{name}_ims.npy",
            np.stack([region_features(picture, REGIONS, DIM)[1] for picture in chosen]),
        )
        captions = [sentence.text for picture in chosen for sentence in picture.sentences]
        (root / f"{name}_caps.txt").write_text("\n".join(captions) + "\n")
        ids = [str(flickr_number(picture)) for picture in chosen for _ in picture.sentences]
        (root / f"{name}_ids.txt").write_text("\n".join(ids) + "\n")


def write_bottom_up(
    pictures: Sequence[Picture], root: Path, image_id: Callable[[Picture], int]
) -> None:
    """Write two TSV files as Anderson et al. publish them, with the images in another order than
    the corpus."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(2):
        rows = []
        for picture in reversed(pictures[number::2]):
            boxes, features = region_features(picture, REGIONS, DIM)
            arrays = (base64.b64encode(array.tobytes()).decode() for array in (boxes, features))
            rows.append(
                "\t".join([str(image_id(picture)), *map(str, picture.size), str(REGIONS), *arrays])
            )
        name = f"karpathy_train_resnet101_faster_rcnn_genome.tsv.{number}"
        (root / name).write_text("\n".join(rows) + "\n")
