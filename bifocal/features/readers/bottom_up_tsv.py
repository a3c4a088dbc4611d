"""Bottom-up-attention features in the TSV format of their authors."""

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from bifocal.datasets import Dataset
from bifocal.features.base import ImageRegions
from bifocal.features.readers.image_arrays import validated

FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")


class BottomUpTSV:
    """Reader of published bottom-up-attention features: TSV files with one row per image.

    Anderson et al., "Bottom-up and top-down attention", CVPR 2018. A row holds image_id, image_w,
    image_h, num_boxes, boxes and features; the last two are float32 in base64. A row belongs to the
    image with its id, or with its id and a file suffix ("1000092795" for "1000092795.jpg" of
    Flickr30k). Files are read once, from the beginning, with one row in memory. Rows of other
    images are skipped; of several rows of one image, the first counts.

    Args:
        path: a TSV file, or a folder of ``*.tsv`` files, which are read in the order of their
            names.
        regions: R, the maximum number of boxes per image: 36, or 100 in the adaptive files.
    """

    def __init__(self, path: str | Path, regions: int = 36) -> None:
        self.path, self.regions = Path(path), regions

    def open(self, dataset: Dataset) -> "BottomUpRows":
        """Open the files."""
        if not self.path.exists():
            raise ValueError(
                f"BottomUpTSV: path {self.path} does not exist, expected a TSV file or a "
                "folder of them"
            )
        files = sorted(self.path.glob("*.tsv*")) if self.path.is_dir() else [self.path]
        if not files:
            raise ValueError(f"BottomUpTSV: {self.path} holds no *.tsv file")
        return BottomUpRows(files, self.regions)


class BottomUpRows:
    """The rows of TSV files."""

    def __init__(self, files: Sequence[Path], regions: int) -> None:
        self.files, self.regions = files, regions
        first = next(self._rows(), None)
        if first is None:
            raise ValueError(f"{files[0]} has no row")
        self.dim = first[1].features.shape[1]

    def describe(self) -> dict[str, Any]:
        """Return the names of the files."""
        return {"files": [path.name for path in self.files]}

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """Yield the row of each image, in the order of the files."""
        missing = {PurePath(image_id).stem: image_id for image_id in image_ids}
        missing |= {image_id: image_id for image_id in image_ids}
        for name, regions in self._rows():
            if name in missing:
                image_id = missing[name]
                for known in {name, image_id, PurePath(image_id).stem}:
                    missing.pop(known, None)
                yield image_id, regions
        if missing:
            absent = sorted(set(missing.values()))
            raise ValueError(
                f"{', '.join(str(path) for path in self.files)}: no row for {len(absent)} "
                f"images of the dataset, the first is {absent[0]!r}"
            )

    def _rows(self) -> Iterator[tuple[str, ImageRegions]]:
        for path in self.files:
            with path.open(encoding="ascii") as file:
                for number, line in enumerate(file, start=1):
                    try:
                        yield _parse(line)
                    except (ValueError, TypeError) as error:
                        raise ValueError(
                            f"{path}, row {number}: {error}; expected {len(FIELDS)} fields "
                            f"{', '.join(FIELDS)}. Is the file truncated? Features of the rows "
                            "before are kept: correct the file and run again"
                        ) from error


def _parse(line: str) -> tuple[str, ImageRegions]:
    name, *sizes, boxes, features = line.rstrip("\n").split("\t")
    width, height, count = (int(size) for size in sizes)
    corners = np.frombuffer(base64.b64decode(boxes, validate=True), np.float32).reshape(count, 4)
    vectors = np.frombuffer(base64.b64decode(features, validate=True), np.float32).reshape(
        count, -1
    )
    relative = corners / np.array([width, height, width, height], np.float32)
    return name, validated(
        ImageRegions(torch.from_numpy(vectors.copy()), torch.from_numpy(relative))
    )
