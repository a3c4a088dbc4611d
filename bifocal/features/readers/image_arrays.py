"""Features in one NumPy file per image."""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bifocal.datasets import Dataset
from bifocal.features.base import ImageRegions

BOX_TOLERANCE = 1e-4
MAX_FLOAT16 = 65504


def validated(regions: ImageRegions) -> ImageRegions:
    """Return ``regions`` if the features are finite float16 numbers and the boxes are inside the
    image."""
    invalid = (~(regions.features.abs() <= MAX_FLOAT16)).nonzero()
    if len(invalid):
        region, feature = invalid[0].tolist()
        value = regions.features[region, feature].item()
        raise ValueError(
            f"feature {feature} of region {region} is {value}, expected a number within "
            f"+-{MAX_FLOAT16}"
        )
    if regions.boxes is not None:
        low, high = regions.boxes[:, :2], regions.boxes[:, 2:]
        valid = (low >= -BOX_TOLERANCE) & (high <= 1 + BOX_TOLERANCE) & (low <= high)
        outside = (~valid.all(dim=1)).nonzero()
        if len(outside):
            box = int(outside[0])
            raise ValueError(
                f"box {box} is {[round(value, 4) for value in regions.boxes[box].tolist()]} "
                "relative to the image's width and height, expected x0 <= x1 and y0 <= y1 in "
                "[0, 1]: is it outside the image?"
            )
    return regions


class ImageArrays:
    """Reader of features in one NumPy file per image, ``<image id>.npy`` or ``<image id>.npz``.

    A ``.npy`` file holds features (r, D); an ``.npz`` file holds features ``x`` (r, D) and optional
    boxes: ``bbox`` (r, 4) in pixels of ``image_w`` x ``image_h``, as tools for bottom-up features
    write them. Other entries are not
    opened: they may hold pickles. The file may also be named by the id without its suffix.

    Phrase localization with the boxes and features of any detector, such as EdgeBoxes with Fast
    R-CNN (Wang, Li, Lazebnik, CVPR 2016, section 3.3), also needs features of ground-truth boxes:
    with ``truth_regions``, ``x_truth`` (t, D) and ``bbox_truth`` (t, 4) of the ``.npz`` file of a
    training image hold them, in any order.

    Args:
        path: folder of the files.
        regions: maximum number of regions per image.
        truth_regions: maximum number of ground-truth boxes per training image.
        dim: D, which every file must have; None takes it from the first file.
    """

    def __init__(
        self, path: str | Path, regions: int = 36, truth_regions: int = 0, dim: int | None = None
    ) -> None:
        self.path, self.regions, self.truth_regions = (
            Path(path),
            regions + truth_regions,
            truth_regions,
        )
        self.dim = dim

    def open(self, dataset: Dataset) -> "ArrayFiles":
        """Find the file of each image."""
        if not self.path.is_dir():
            raise ValueError(
                f"ImageArrays: path {self.path} is not a folder, expected one with .npy or "
                ".npz files"
            )
        names = {path.name for path in self.path.iterdir()}
        files = {
            str(image_id): _file_of(str(image_id), names) for image_id in dataset.images["image_id"]
        }
        missing = [image_id for image_id, name in files.items() if name is None]
        if missing:
            raise ValueError(
                f"{self.path} has no file for {len(missing)} images of the dataset, such as "
                f"{missing[0]}.npy"
            )
        paths = {image_id: self.path / name for image_id, name in files.items() if name}
        found = ArrayFiles(paths, self.regions, self.truth_regions)
        if self.dim not in (None, found.dim):
            raise ValueError(
                f"{next(iter(paths.values()))} has {found.dim} numbers per region, but dim of "
                f"ImageArrays is {self.dim}"
            )
        return found


class ArrayFiles:
    """The file of each image."""

    def __init__(self, files: dict[str, Path], regions: int, truth_regions: int) -> None:
        self.files, self.regions, self.truth_regions = files, regions, truth_regions
        self.dim = _read(next(iter(files.values()))).features.shape[1]

    def describe(self) -> dict[str, Any]:
        """Return the number of ground-truth boxes; the files do not say how they were computed."""
        return {"truth_regions": self.truth_regions} if self.truth_regions else {}

    def read(self, image_ids: Sequence[str]) -> Iterator[tuple[str, ImageRegions]]:
        """Yield the features of each image, in the order of ``image_ids``."""
        for image_id in image_ids:
            yield image_id, _read(self.files[image_id], with_truth=self.truth_regions > 0)


def _file_of(image_id: str, names: set[str]) -> str | None:
    candidates = [
        f"{name}.{suffix}"
        for name in (image_id, PurePath(image_id).stem)
        for suffix in ("npz", "npy")
    ]
    return next((name for name in candidates if name in names), None)


def _read(path: Path, with_truth: bool = False) -> ImageRegions:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return validated(ImageRegions(_matrix(loaded)))
        with loaded:
            features = _matrix(loaded["x"])
            if "bbox" not in loaded:
                return validated(ImageRegions(features))
            width, height = float(loaded["image_w"]), float(loaded["image_h"])
            sides = np.array([width, height, width, height], np.float32)
            boxes, truth = torch.from_numpy(loaded["bbox"].astype(np.float32) / sides), 0
            if with_truth and "x_truth" in loaded:
                features, truth = (
                    torch.cat([features, _matrix(loaded["x_truth"])]),
                    len(loaded["x_truth"]),
                )
                boxes = torch.cat(
                    [boxes, torch.from_numpy(loaded["bbox_truth"].astype(np.float32) / sides)]
                )
            return validated(ImageRegions(features, boxes, truth=truth))
    except (ValueError, KeyError, EOFError, OSError) as error:
        raise ValueError(
            f"{path}: {error}; expected features (r, D), in an .npz as x, with bbox, image_w "
            "and image_h, and x_truth with bbox_truth"
        ) from error


def _matrix(array: NDArray[Any]) -> torch.Tensor:
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"the features are {array.shape} of {array.dtype}")
    return torch.from_numpy(array.astype(np.float32))
