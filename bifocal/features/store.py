"""The feature store: regions' features of many images in sharded Arrow IPC files, memory-mapped."""

import json
import mmap
from collections.abc import Iterable, Mapping
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
BYTES_MAPPED = 1 << 30
"""The pages of the files that a store keeps mapped between two gathers, roughly, in bytes."""
BYTES_ALONE = 1 << 20
"""What one thread gathers sooner than it could wake another."""


class RegionBatch(NamedTuple):
    """The regions of B images, or their pixels (features of the kind Pixels).

    Attributes:
        features: (B, R, D) float16, zero where there is no region; or (B, 3, H, W) uint8, zero beyond the image.
        mask: (B, R) bool, True where there is a region; true regions come first. Or (B, H, W), where there is an image.
        boxes: (B, R, 4) float32, x0 y0 x1 y1 relative to the image's width and height; NaN if the source has none.
            (B, 0, 4) of pixels.
    """

    features: Tensor
    mask: Tensor
    boxes: Tensor


class Shard(NamedTuple):
    """One file of the store, n images; the arrays are views of the file's pages."""

    image_ids: list[str]
    features: NDArray[Any]  # (n, R, D)
    boxes: NDArray[np.float32]  # (n, R, 4)
    scores: NDArray[np.float32]  # (n, R)
    counts: NDArray[np.int32]  # (n,)
    metadata: dict[str, Any]
    pages: mmap.mmap


class FeatureStore:
    """Random access to features on disk: nothing is loaded, and a gather copies each region once.

    Resident memory stays bounded however large the store is: pages that were read are handed back to the
    system's cache, where they do not count.

    Args:
        directory: of the ``*.arrow`` files that :class:`FeatureWriter` wrote; their order is that of their names.

    Attributes:
        image_ids: (N,) in the order of the rows.
        regions: R, the most regions of an image.
        dim: D, of a region's features; 3 of pixels, whose store has R = H rows of R x 3 numbers.
        pixels: whether these are images.
        metadata: backbone, layer, SHA-256 of the weights, preprocessing ...: whatever the writer was given.

    Raises:
        FileNotFoundError: the directory holds no shard.
        ValueError: a file is no whole shard, or its metadata are not those of the first.
    """

    def __init__(self, directory: Path) -> None:
        paths = sorted(directory.glob("*.arrow"))
        if not paths:
            raise FileNotFoundError(
                f"{directory} holds no *.arrow file: run extract_features, which writes the feature store"
            )
        self._shards = [read_shard(path) for path in paths]
        self.metadata = self._shards[0].metadata
        for path, shard in zip(paths, self._shards, strict=True):
            check_same_metadata(path, shard.metadata, self.metadata)
        self.regions: int = self.metadata["regions"]
        self.pixels = self.metadata.get("layer") == "pixels"
        self.dim: int = 3 if self.pixels else self.metadata["dim"]
        self._row_shape, self._dtype = (self.regions, self.metadata["dim"]), feature_type(self.metadata)
        self.image_ids = [image_id for shard in self._shards for image_id in shard.image_ids]
        self._row = {image_id: row for row, image_id in enumerate(self.image_ids)}
        if len(self._row) != len(self.image_ids):
            twice = next(image_id for row, image_id in enumerate(self.image_ids) if self._row[image_id] != row)
            raise ValueError(f"{directory} holds image {twice!r} twice: remove the shards of one of the extractions")
        self._shard_of = np.repeat(np.arange(len(paths)), [len(shard.image_ids) for shard in self._shards])
        self._place = np.concatenate([np.arange(len(shard.image_ids)) for shard in self._shards])
        # Boxes, scores and counts are small beside the features, and stay in memory.
        self._boxes = np.concatenate([shard.boxes for shard in self._shards])
        self._scores = np.concatenate([shard.scores for shard in self._shards])
        self._counts = np.concatenate([shard.counts for shard in self._shards])
        self._bytes_mapped = 0
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(self._threads)

    def __len__(self) -> int:
        """N, the number of images."""
        return len(self.image_ids)

    def rows(self, image_ids: Iterable[str]) -> NDArray[np.int64]:
        """The rows of these images, in the order given.

        Raises:
            ValueError: the store does not have one of them.
        """
        wanted = list(image_ids)
        missing = [image_id for image_id in wanted if image_id not in self._row]
        if missing:
            raise ValueError(
                f"the feature store lacks {len(missing)} of {len(wanted)} images, the first is {missing[0]!r}: "
                f"run extract_features on the dataset that has them (the store has {len(self)} images)"
            )
        return np.array([self._row[image_id] for image_id in wanted], dtype=np.int64)

    def gather(self, rows: ArrayLike | Tensor) -> RegionBatch:
        """The regions of the images in ``rows`` (B,), in that order; a row may come more than once."""
        index = np.asarray(rows, dtype=np.int64)
        # NumPy asks the system for huge pages, torch does not: a third of the time.
        features = np.empty((len(index), *self._row_shape), self._dtype)
        # One core does not fill the memory's bus.
        threads = self._threads if features.nbytes > BYTES_ALONE else 1
        edges = [len(index) * part // threads for part in range(threads + 1)]
        parts = [slice(*ends) for ends in pairwise(edges)]
        run = self._pool.map if threads > 1 else map
        list(run(lambda part: self._copy(index[part], features[part]), parts))
        self._bytes_mapped += features.nbytes
        if self._bytes_mapped > BYTES_MAPPED:
            self._unmap()
        if self.pixels:
            return self._images(index, features)
        return RegionBatch(
            torch.from_numpy(features),
            torch.from_numpy(np.arange(self.regions) < self._counts[index, None]),
            torch.from_numpy(self._boxes[index]),
        )

    def scores(self, rows: ArrayLike | Tensor) -> Tensor:
        """The scores of the regions in ``rows``: (B, R) float32, zero where there is no region."""
        return torch.from_numpy(self._scores[np.asarray(rows, dtype=np.int64)])

    def _copy(self, index: NDArray[np.int64], target: NDArray[Any]) -> None:
        places = zip(self._shard_of[index].tolist(), self._place[index].tolist(), strict=True)
        for position, (shard, place) in enumerate(places):
            target[position] = self._shards[shard].features[place]

    def _images(self, index: NDArray[np.int64], rows: NDArray[Any]) -> RegionBatch:
        side = np.arange(self.regions)
        heights, widths = self._counts[index], self._scores[index, 0]
        mask = (side < heights[:, None])[:, :, None] & (side < widths[:, None])[:, None, :]
        images = torch.from_numpy(rows).unflatten(2, (self.regions, 3)).permute(0, 3, 1, 2)
        return RegionBatch(images, torch.from_numpy(mask), torch.zeros(len(index), 0, 4))

    def _unmap(self) -> None:
        for shard in self._shards:
            shard.pages.madvise(mmap.MADV_DONTNEED)
        self._bytes_mapped = 0


def feature_type(metadata: Mapping[str, Any]) -> np.dtype[Any]:
    """Of the numbers in a store: float16, unless its metadata say ``"dtype": "uint8"``."""
    name: str = metadata.get("dtype", "float16")
    return np.dtype(name)


def read_shard(path: Path) -> Shard:
    """Map one file of a feature store.

    Raises:
        ValueError: it is cut off, or no shard; names the file.
    """
    try:
        with path.open("rb") as file:
            # Not pa.memory_map: only this one can be told to give pages back.
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.py_buffer(pages))
        metadata = json.loads(reader.schema.metadata[METADATA])
        batch = reader.get_batch(0)
        count, regions, dim = batch.num_rows, metadata["regions"], metadata["dim"]

        def view(name: str, *shape: int) -> NDArray[Any]:
            values: NDArray[Any] = batch[name].values.to_numpy(zero_copy_only=True)
            return values.reshape(count, *shape)

        return Shard(
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
            f"{path} is no whole shard of a feature store ({error}): delete it and run extract_features again"
        ) from error


def check_same_metadata(path: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) != expected.get(key):
            raise ValueError(
                f"{path} holds other features: its {key} is {found.get(key)!r}, expected {expected.get(key)!r}; "
                "delete the shards that are not of this extraction"
            )
