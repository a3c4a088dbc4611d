"""Features as one array file for each image."""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bifocal.datasets import Dataset
from bifocal.features.base import ImageRegions
from bifocal.features.readers.validation import checked


class ImageArrays:
    """``<image id>.npy`` with features (r, D), or ``.npz`` with ``x`` (r, D) and, if it has them, boxes.

    The boxes are ``bbox`` (r, 4) in pixels of ``image_w`` x ``image_h``, as tools for bottom-up features write them.
    Other entries, which may hold pickles, are not opened. The file may also be called by the id without its suffix.

    Args:
        regions: R, the most regions of an image.
    """

    def __init__(self, regions: int = 36) -> None:
        self.regions = regions

    def open(self, dataset: Dataset, source: Path | None) -> "ArrayFiles":
        """Find the file of each image in the folder ``source``.

        Raises:
            ValueError: there is no such folder, or an image has no file; names the first.
        """
        if source is None or not source.is_dir():
            raise ValueError(f"ImageArrays needs extract_features.source: a folder of .npy or .npz files, not {source}")
        names = {path.name for path in source.iterdir()}
        files = {str(image_id): _file_of(str(image_id), names) for image_id in dataset.images["image_id"]}
        missing = [image_id for image_id, name in files.items() if name is None]
        if missing:
            raise ValueError(f"{source} has no file for {len(missing)} images of the dataset, such as {missing[0]}.npy")
        return ArrayFiles({image_id: source / name for image_id, name in files.items() if name}, self.regions)


class ArrayFiles:
    """The file of each image."""

    def __init__(self, files: dict[str, Path], regions: int) -> None:
        self.files, self.regions = files, regions
        self.dim = _read(next(iter(files.values()))).features.shape[1]

    def describe(self) -> dict[str, Any]:
        """Nothing is known of them."""
        return {}

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """The file of each image, in the order given.

        Raises:
            ValueError: a file is not in the format; names it.
        """
        for image_id in image_ids:
            yield image_id, _read(self.files[image_id])


def _file_of(image_id: str, names: set[str]) -> str | None:
    candidates = [f"{name}.{suffix}" for name in (image_id, PurePath(image_id).stem) for suffix in ("npz", "npy")]
    return next((name for name in candidates if name in names), None)


def _read(path: Path) -> ImageRegions:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return checked(ImageRegions(_matrix(loaded)))
        with loaded:
            features = _matrix(loaded["x"])
            if "bbox" not in loaded:
                return checked(ImageRegions(features))
            width, height = float(loaded["image_w"]), float(loaded["image_h"])
            sides = np.array([width, height, width, height], np.float32)
            return checked(ImageRegions(features, torch.from_numpy(loaded["bbox"].astype(np.float32) / sides)))
    except (ValueError, KeyError, EOFError, OSError) as error:
        raise ValueError(
            f"{path}: {error}; expected features (r, D), in an .npz as x, with bbox, image_w and image_h"
        ) from error


def _matrix(array: NDArray[Any]) -> torch.Tensor:
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"the features are {array.shape} of {array.dtype}")
    return torch.from_numpy(array.astype(np.float32))
