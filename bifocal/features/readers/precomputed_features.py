"""Features as VSE++ and SCAN publish them: one array per split."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bifocal.datasets import Dataset
from bifocal.datasets.base import SPLITS
from bifocal.datasets.formats.files import open_array
from bifocal.features.base import ImageRegions
from bifocal.features.readers.image_arrays import validated


class PrecomputedFeatures:
    """Reader of the published features of VSE++ and SCAN, for the corpus ``PrecomputedCaptions``.

    Faghri et al., "VSE++", BMVC 2018; Lee et al., "Stacked cross attention", ECCV 2018: one array
    ``{split}_ims.npy`` per split, (N, D) or (N, R, D), with one row per image or per caption. The
    arrays are memory-mapped. An image's id contains its row, see
    ``bifocal.datasets.corpora.PrecomputedCaptions``. Boxes are not published.

    Args:
        path: folder of the arrays; None for the folder of the dataset's images.
        train: name of the split "train" in the file names.
        val: name of the split "val".
        test: name of the split "test".
    """

    def __init__(
        self,
        path: str | Path | None = None,
        train: str = "train",
        val: str = "dev",
        test: str = "test",
    ) -> None:
        self.path = None if path is None else Path(path)
        self.names = dict(zip(SPLITS, (train, val, test), strict=True))

    def open(self, dataset: Dataset) -> "PrecomputedArrays":
        """Map the arrays to memory."""
        root = dataset.image_root if self.path is None else self.path
        files = {
            split: root / f"{self.names[split]}_ims.npy"
            for split in dataset.images["split"].unique()
        }
        return PrecomputedArrays(
            files, dict(zip(dataset.images["image_id"], dataset.images["split"], strict=True))
        )


class PrecomputedArrays:
    """The memory-mapped array (N, R, D) of each split."""

    def __init__(self, files: dict[str, Path], split_of: dict[str, str]) -> None:
        self.files, self.split_of = files, split_of
        arrays = {split: open_array(path, "PrecomputedFeatures") for split, path in files.items()}
        self.arrays = {
            split: array.reshape(len(array), -1, array.shape[-1]) for split, array in arrays.items()
        }
        shapes = {split: array.shape[1:] for split, array in self.arrays.items()}
        if len(set(shapes.values())) > 1:
            raise ValueError(
                f"the arrays {', '.join(map(str, files.values()))} differ in regions x "
                f"dimension: {shapes}"
            )
        self.regions, self.dim = next(iter(shapes.values()))

    def describe(self) -> dict[str, Any]:
        """Return the number of rows of each split."""
        return {"rows": {split: len(array) for split, array in self.arrays.items()}}

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """Yield the row of each image, in the order of ``image_ids``."""
        for image_id in image_ids:
            path, array = self.files[self.split_of[image_id]], self.arrays[self.split_of[image_id]]
            row = image_id.split("-")[1:2]
            if not (row and row[0].isdigit() and int(row[0]) < len(array)):
                raise ValueError(
                    f"image {image_id!r} names no row of the {len(array)} in {path}: expected "
                    "an id such as 'train-000015-391895', as in the corpus PrecomputedCaptions"
                )
            try:
                regions = validated(
                    ImageRegions(torch.from_numpy(array[int(row[0])].astype(np.float32)))
                )
            except ValueError as error:
                raise ValueError(f"{path}, row {row[0]} (image {image_id!r}): {error}") from error
            yield image_id, regions
