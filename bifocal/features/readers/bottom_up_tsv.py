"""Bottom-up-attention features as their authors publish them."""

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from bifocal.datasets import Dataset
from bifocal.features.base import ImageRegions
from bifocal.features.readers.validation import checked

FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")


class BottomUpTSV:
    """Rows of image_id, image_w, image_h, num_boxes, boxes, features; the last two float32 in base64.

    Anderson et al., "Bottom-up and top-down attention", CVPR 2018. A row belongs to the image of that id, or whose id
    without its suffix is that ("1000092795" of Flickr30k's "1000092795.jpg"). The file is read once, from its
    beginning, one row in memory; rows of other images, and all but the first of an image, are passed over.

    Args:
        regions: R, the most boxes of an image: 36, or 100 in the adaptive files.
    """

    def __init__(self, regions: int = 36) -> None:
        self.regions = regions

    def open(self, dataset: Dataset, source: Path | None) -> "BottomUpRows":
        """Open ``source``, a TSV file or a folder of them, which are read in the order of their names.

        Raises:
            ValueError: there is none, or its first row is not in the format.
        """
        if source is None or not source.exists():
            raise ValueError(f"BottomUpTSV needs extract_features.source: a TSV file or a folder of them, not {source}")
        paths = sorted(source.glob("*.tsv*")) if source.is_dir() else [source]
        if not paths:
            raise ValueError(f"BottomUpTSV: {source} holds no *.tsv file")
        return BottomUpRows(paths, self.regions)


class BottomUpRows:
    """The rows of TSV files."""

    def __init__(self, paths: Sequence[Path], regions: int) -> None:
        self.paths, self.regions = paths, regions
        first = next(self._rows(), None)
        if first is None:
            raise ValueError(f"{paths[0]} has no row")
        self.dim = first[1].features.shape[1]

    def describe(self) -> dict[str, Any]:
        """Names of the files."""
        return {"files": [path.name for path in self.paths]}

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """The row of each image, in the order of the files.

        Raises:
            ValueError: a row is cut off or not in the format (names file and row), or an image has none.
        """
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
                f"{', '.join(str(path) for path in self.paths)}: no row for {len(absent)} images of the dataset, "
                f"the first is {absent[0]!r}"
            )

    def _rows(self) -> Iterator[tuple[str, ImageRegions]]:
        for path in self.paths:
            with path.open(encoding="ascii") as file:
                for number, line in enumerate(file, start=1):
                    try:
                        yield _parsed(line)
                    except (ValueError, TypeError) as error:
                        raise ValueError(
                            f"{path}, row {number}: {error}; expected {len(FIELDS)} fields {', '.join(FIELDS)}. "
                            "Is the file cut off? What was read before is kept: mend the file and run again"
                        ) from error


def _parsed(line: str) -> tuple[str, ImageRegions]:
    name, *sizes, boxes, features = line.rstrip("\n").split("\t")
    width, height, count = (int(size) for size in sizes)
    corners = np.frombuffer(base64.b64decode(boxes, validate=True), np.float32).reshape(count, 4)
    vectors = np.frombuffer(base64.b64decode(features, validate=True), np.float32).reshape(count, -1)
    relative = corners / np.array([width, height, width, height], np.float32)
    return name, checked(ImageRegions(torch.from_numpy(vectors.copy()), torch.from_numpy(relative)))
