"""Features as VSE++ and SCAN publish them: one array for each split."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bifocal.datasets import Dataset
from bifocal.datasets.base import SPLITS
from bifocal.features.base import ImageRegions
from bifocal.features.readers.validation import checked


class PrecomputedFeatures:
    """``{split}_ims.npy`` of the corpus ``PrecomputedCaptions``: (N, D) or (N, R, D), with a row for each image or caption.

    Faghri et al., "VSE++", BMVC 2018; Lee et al., "Stacked cross attention", ECCV 2018. The arrays are mapped into
    memory; an image's id holds its row, as ``bifocal.datasets.corpora.PrecomputedCaptions`` says. No boxes are published.

    Args:
        train, val, test: what the files of a split are called; as for the dataset.
    """

    def __init__(self, train: str = "train", val: str = "dev", test: str = "test") -> None:
        self.names = dict(zip(SPLITS, (train, val, test), strict=True))

    def open(self, dataset: Dataset, source: Path | None) -> "PrecomputedArrays":
        """Map the arrays in the dataset's folder, or in ``source`` if that is given.

        Raises:
            ValueError: an array is missing or no array of numbers, or two differ in regions or dimension.
        """
        root = dataset.image_root if source is None else source
        files = {split: root / f"{self.names[split]}_ims.npy" for split in dataset.images["split"].unique()}
        return PrecomputedArrays(files, dict(zip(dataset.images["image_id"], dataset.images["split"], strict=True)))


class PrecomputedArrays:
    """The arrays (N, R, D) of each split, mapped into memory."""

    def __init__(self, files: dict[str, Path], split_of: dict[str, str]) -> None:
        self.files, self.split_of = files, split_of
        self.arrays = {split: _mapped(path) for split, path in files.items()}
        shapes = {split: array.shape[1:] for split, array in self.arrays.items()}
        if len(set(shapes.values())) > 1:
            raise ValueError(
                f"the arrays {', '.join(map(str, files.values()))} differ in regions x dimension: {shapes}"
            )
        self.regions, self.dim = next(iter(shapes.values()))

    def describe(self) -> dict[str, Any]:
        """The number of rows of each split."""
        return {"rows": {split: len(array) for split, array in self.arrays.items()}}

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """The row of each image, in the order given.

        Raises:
            ValueError: an id holds no row of the array.
        """
        for image_id in image_ids:
            array, row = self.arrays[self.split_of[image_id]], image_id.split("-")[1:2]
            if not (row and row[0].isdigit() and int(row[0]) < len(array)):
                raise ValueError(
                    f"image {image_id!r} names no row of the {len(array)} in {self.files[self.split_of[image_id]]}: "
                    "expected an id such as 'train-000015-391895', as the corpus PrecomputedCaptions gives it"
                )
            try:
                regions = checked(ImageRegions(torch.from_numpy(array[int(row[0])].astype(np.float32))))
            except ValueError as error:
                raise ValueError(
                    f"{self.files[self.split_of[image_id]]}, row {row[0]} (image {image_id!r}): {error}"
                ) from error
            yield image_id, regions


def _mapped(path: Path) -> NDArray[Any]:
    if not path.is_file():
        raise ValueError(f"PrecomputedFeatures needs {path}: no such file")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is no whole array of numbers: {error}") from error
    if array.ndim not in (2, 3) or not np.issubdtype(array.dtype, np.number):
        raise ValueError(f"{path} has shape {array.shape} of {array.dtype}, expected numbers (N, D) or (N, R, D)")
    return array.reshape(len(array), -1, array.shape[-1])
