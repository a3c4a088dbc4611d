"""A detector's boxes and features, one ``.npz`` file per image; training images have ground-truth
boxes too."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.rehearsals.papers.layouts.karpathy import flickr_number
from tests.rehearsals.papers.layouts.region_features import DIM
from tests.rehearsals.papers.pictures import Picture, box_features, region_features

PROPOSALS = 16


def write_detector_arrays(pictures: Sequence[Picture], root: Path) -> None:
    """Write ``<number>.npz`` with x, bbox, image_w and image_h, and x_truth and bbox_truth of the
    training images."""
    root.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        boxes, features = region_features(picture, PROPOSALS, DIM)
        arrays = {
            "x": features,
            "bbox": boxes,
            "image_w": picture.size[0],
            "image_h": picture.size[1],
        }
        if picture.split == "train":
            arrays["bbox_truth"] = np.array(
                [picture.box(item) for item in picture.objects()], np.float32
            )
            arrays["x_truth"] = np.stack(
                [box_features(picture, item, DIM) for item in picture.objects()]
            )
        np.savez(root / f"{flickr_number(picture)}.npz", **arrays)
