"""The feature store: features of many images in memory-mapped Arrow IPC files."""

import json
import mmap
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

METADATA = b"bifocal"
PIXELS, IMAGE_FILES = "pixels", "image files"
"""``layer`` in the metadata of a store of images, and of a store of image sizes."""
MAX_BYTES_MAPPED = 1 << 30
"""Approximate limit on the bytes of file pages that a store keeps mapped between two gathers."""
MAX_BYTES_PER_THREAD = 1 << 20
"""Gather at most this many bytes on the calling thread; more is split over the pool."""


class StoreFile(NamedTuple):
    """One file of the store with n images; the arrays are views of the file's pages."""

    image_ids: list[str]
    features: NDArray[Any]  # (n, R, D)
    boxes: NDArray[np.float32]  # (n, R, 4)
    scores: NDArray[np.float32]  # (n, R)
    counts: NDArray[np.int32]  # (n,)
    metadata: dict[str, Any]
    pages: mmap.mmap


def feature_type(metadata: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the dtype of a store's features: float16, unless the metadata have ``dtype``, such as
    "uint8"."""
    name: str = metadata.get("dtype", "float16")
    return np.dtype(name)


def open_store_file(path: Path) -> StoreFile:
    """Map one file of a feature store to memory."""
    try:
        with path.open("rb") as file:
            # Not pa.memory_map: it has no madvise, which releases the pages.
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.py_buffer(pages))
        metadata = json.loads(reader.schema.metadata[METADATA])
        batch = reader.get_batch(0)
        count, regions, dim = batch.num_rows, metadata["regions"], metadata["dim"]

        def view(name: str, *shape: int) -> NDArray[Any]:
            values: NDArray[Any] = batch[name].values.to_numpy(zero_copy_only=True)
            return values.reshape(count, *shape)

        return StoreFile(
            image_ids=batch["image_id"].to_pylist(),
            features=view("features", regions, dim),
            boxes=view("boxes", regions, 4),
            scores=view("scores", regions),
            counts=batch["regions"].to_numpy(),
            metadata=metadata,
            pages=pages,
        )
    except (pa.ArrowInvalid, pa.ArrowIndexError, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is not a complete file of a feature store ({error}): delete it and "
            "extract the features again"
        ) from error


def check_same_metadata(
    path: Path, metadata: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    """Raise ``ValueError`` unless the metadata of the file ``path`` are as expected; the message
    names a key."""
    for key in sorted(metadata.keys() | expected.keys()):
        if metadata.get(key) != expected.get(key):
            raise ValueError(
                f"{path} holds other features: its {key} is {metadata.get(key)!r}, expected "
                f"{expected.get(key)!r}; delete the files of the other extraction"
            )


class RegionBatch(NamedTuple):
    """The regions of B images, or their pixels (extractors Pixels and ImageFiles).

    Attributes:
        features: (B, R, D) float16, zero where there is no region; or (B, 3, H, W) uint8, zero in
            the padding.
        mask: (B, R) bool, True for regions, which precede the padding; or (B, H, W), True for
            pixels of the image.
        boxes: (B, R, 4) float32, x0 y0 x1 y1 relative to the image's width and height; NaN if the
            source has none. (B, 0, 4) for pixels.
    """

    features: Tensor
    mask: Tensor
    boxes: Tensor


class FeatureStore:
    """Random access to features on disk: opening loads no features, and a gather copies each region
    once.

    Resident memory is bounded for a store of any size: after reading, pages are released to the
    system's page cache.

    Args:
        directory: holds the ``*.arrow`` files of :class:`FeatureWriter`; they are read in the order
            of their names.

    Attributes:
        image_ids: (N,) in the order of the rows.
        regions: R, the maximum number of regions per image, without ground-truth boxes.
        truth_regions: T, the maximum number of ground-truth boxes per image, which only
            ``gather_regions`` returns.
        dim: D, the dimension of a region's features; 3 for pixels, whose files have R = H rows of R
            x 3 numbers.
        pixels: whether ``gather`` returns images.
        metadata: the writer's metadata: extractor, backbone, layer, SHA-256 of the weights,
            preprocessing.

    Raises:
        FileNotFoundError: the directory holds no ``*.arrow`` file.
        ValueError: a file is truncated, or its metadata differ from the first file's.

    Example:
        >>> from tempfile import mkdtemp
        >>> from bifocal.features import FeatureWriter
        >>> directory = Path(mkdtemp())
        >>> with FeatureWriter(directory, regions=2, dim=3, metadata={}) as writer:
        ...     writer.add("a.jpg", np.ones((1, 3)))
        >>> FeatureStore(directory).gather([0]).mask
        tensor([[ True, False]])
    """

    def __init__(self, directory: Path) -> None:
        paths = sorted(directory.glob("*.arrow"))
        if not paths:
            raise FileNotFoundError(
                f"{directory} holds no *.arrow file: extract the features first"
            )
        self.directory = directory
        self._files = [open_store_file(path) for path in paths]
        self.metadata = self._files[0].metadata
        for path, file in zip(paths, self._files, strict=True):
            check_same_metadata(path, file.metadata, self.metadata)
        self.truth_regions: int = self.metadata.get("truth_regions", 0)
        self.regions: int = self.metadata["regions"] - self.truth_regions
        self.pixels = self.metadata.get("layer") in (PIXELS, IMAGE_FILES)
        self.dim: int = 3 if self.pixels else self.metadata["dim"]
        self._row_shape, self._dtype = (
            (self.regions, self.metadata["dim"]),
            feature_type(self.metadata),
        )
        self.image_ids = [image_id for file in self._files for image_id in file.image_ids]
        self._row = {image_id: row for row, image_id in enumerate(self.image_ids)}
        if len(self._row) != len(self.image_ids):
            twice = next(
                image_id
                for row, image_id in enumerate(self.image_ids)
                if self._row[image_id] != row
            )
            raise ValueError(
                f"{directory} holds image {twice!r} twice: remove the files of one of the "
                "extractions"
            )
        self._file_of_row = np.repeat(
            np.arange(len(paths)), [len(file.image_ids) for file in self._files]
        )
        self._row_in_file = np.concatenate([np.arange(len(file.image_ids)) for file in self._files])
        # Boxes, scores and counts are small compared with the features: copy them to memory.
        self._boxes = np.concatenate([file.boxes[:, : self.regions] for file in self._files])
        self._truth_boxes = np.concatenate([file.boxes[:, self.regions :] for file in self._files])
        self._scores = np.concatenate([file.scores[:, : self.regions] for file in self._files])
        self._counts = np.concatenate([file.counts for file in self._files])
        self._bytes_mapped = 0
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(self._threads)

    def __len__(self) -> int:
        return len(self.image_ids)

    def rows(self, image_ids: Iterable[str]) -> NDArray[np.int64]:
        """Return the rows of images, in the order of ``image_ids``.

        Raises:
            ValueError: the store lacks one of the images.
        """
        requested = list(image_ids)
        missing = [image_id for image_id in requested if image_id not in self._row]
        if missing:
            raise ValueError(
                f"the feature store lacks {len(missing)} of {len(requested)} images, the first "
                f"is {missing[0]!r}: extract the features of the dataset that has them (the "
                f"store has {len(self)} images)"
            )
        return np.array([self._row[image_id] for image_id in requested], dtype=np.int64)

    def gather(self, rows: ArrayLike | Tensor) -> RegionBatch:
        """Return the regions of the images in ``rows`` (B,), in that order; a row may occur more
        than once.

        Raises:
            ValueError: the store holds no features, but the sizes of image files.
        """
        if self.metadata.get("layer") == IMAGE_FILES:
            raise ValueError(
                "these features are image files of a dataset: open them with open_features()"
            )
        index = np.asarray(rows, dtype=np.int64)
        # NumPy allocates huge pages, torch does not: this takes a third of the time.
        features = np.empty((len(index), *self._row_shape), self._dtype)
        # One core cannot use the full memory bandwidth.
        threads = self._threads if features.nbytes > MAX_BYTES_PER_THREAD else 1
        edges = [len(index) * thread // threads for thread in range(threads + 1)]
        slices = [slice(*ends) for ends in pairwise(edges)]
        run = self._pool.map if threads > 1 else map
        list(run(lambda part: self._copy(index[part], features[part]), slices))
        self._count_mapped(features.nbytes)
        if self.pixels:
            return self._images(index, features)
        return RegionBatch(
            torch.from_numpy(features),
            torch.from_numpy(np.arange(self.regions) < self._counts[index, None]),
            torch.from_numpy(self._boxes[index]),
        )

    def unpadded(self, image_ids: Iterable[str]) -> list[NDArray[Any]]:
        """Return the features (R, D) of the R regions of each image."""
        regions = self.gather(self.rows(image_ids))
        return [
            features[mask].numpy()
            for features, mask in zip(regions.features, regions.mask, strict=True)
        ]

    def batches(self, rows: NDArray[np.int64], size: int) -> Iterator[RegionBatch]:
        """Yield the regions of the images in ``rows``, ``size`` images at a time, in that order."""
        return (self.gather(rows[start : start + size]) for start in range(0, len(rows), size))

    def gather_regions(self, rows: ArrayLike | Tensor, regions: ArrayLike | Tensor) -> RegionBatch:
        """Return single regions (n, 1, D), each as an image of its own; no other region is read.

        Args:
            rows: (n,) rows of images.
            regions: (n,) numbers of their regions; R and above are ground-truth boxes.
        """
        index, region = np.asarray(rows, dtype=np.int64), np.asarray(regions, dtype=np.int64)
        features = np.empty((len(index), self.dim), self._dtype)
        places = zip(
            self._file_of_row[index].tolist(),
            self._row_in_file[index].tolist(),
            region.tolist(),
            strict=True,
        )
        for position, (file, row, number) in enumerate(places):
            features[position] = self._files[file].features[row, number]
        self._count_mapped(features.nbytes)
        boxes = np.empty((len(index), 4), np.float32)
        given = region < self.regions
        boxes[given] = self._boxes[index[given], region[given]]
        boxes[~given] = self._truth_boxes[index[~given], region[~given] - self.regions]
        mask = torch.ones(len(index), 1, dtype=torch.bool)
        return RegionBatch(
            torch.from_numpy(features).unsqueeze(1), mask, torch.from_numpy(boxes).unsqueeze(1)
        )

    @property
    def has_boxes(self) -> bool:
        """Whether regions have a place: their source has boxes, or they are pixels."""
        return self.pixels or not bool(self.boxes([0]).isnan().all())

    def boxes(self, rows: ArrayLike | Tensor) -> Tensor:
        """Return the boxes (B, R, 4) of the images in ``rows``; see ``RegionBatch``."""
        return torch.from_numpy(self._boxes[np.asarray(rows, dtype=np.int64)])

    def truth_boxes(self, rows: ArrayLike | Tensor) -> Tensor:
        """Return the ground-truth boxes (B, T, 4) of the images in ``rows``; NaN where there is
        none."""
        return torch.from_numpy(self._truth_boxes[np.asarray(rows, dtype=np.int64)])

    def counts(self, rows: ArrayLike | Tensor) -> Tensor:
        """Return the number of regions (B,) int32 of the images in ``rows``, without ground-truth
        boxes."""
        return torch.from_numpy(self._counts[np.asarray(rows, dtype=np.int64)])

    def scores(self, rows: ArrayLike | Tensor) -> Tensor:
        """Return the region scores of the images in ``rows``: (B, R) float32, zero where there is
        no region."""
        return torch.from_numpy(self._scores[np.asarray(rows, dtype=np.int64)])

    def _copy(self, index: NDArray[np.int64], target: NDArray[Any]) -> None:
        locations = zip(
            self._file_of_row[index].tolist(), self._row_in_file[index].tolist(), strict=True
        )
        for position, (file, row) in enumerate(locations):
            target[position] = self._files[file].features[row, : self.regions]

    def _images(self, index: NDArray[np.int64], rows: NDArray[Any]) -> RegionBatch:
        side = np.arange(self.regions)
        heights, widths = self._counts[index], self._scores[index, 0]
        mask = (side < heights[:, None])[:, :, None] & (side < widths[:, None])[:, None, :]
        images = torch.from_numpy(rows).unflatten(2, (self.regions, 3)).permute(0, 3, 1, 2)
        return RegionBatch(images, torch.from_numpy(mask), torch.zeros(len(index), 0, 4))

    def _count_mapped(self, size: int) -> None:
        self._bytes_mapped += size
        if self._bytes_mapped > MAX_BYTES_MAPPED:
            for file in self._files:
                file.pages.madvise(mmap.MADV_DONTNEED)
            self._bytes_mapped = 0
