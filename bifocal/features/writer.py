"""Writing the feature store."""

import json
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bifocal.features.store import METADATA, check_same_metadata, feature_type, read_shard


class FeatureWriter:
    """Writes a feature store shard by shard; a shard is written aside and renamed, so it is whole or absent.

    The file is written while the next shard fills, so at most two shards are in memory.

    A writer opened where a killed one worked goes on after the last whole shard: give it the images that are not
    in ``written``, in the same order, and the bytes will be those of an undisturbed run.

    Args:
        directory: of the shards; exists.
        regions: R, the most regions of an image.
        dim: D, of a region's features.
        metadata: what JSON can hold; says how the features were made.
        shard_size: images in a shard.
        part: number of this extraction, where several write the same store in parallel.

    Raises:
        ValueError: the directory holds shards of other features.
    """

    def __init__(
        self,
        directory: Path,
        *,
        regions: int,
        dim: int,
        metadata: Mapping[str, Any],
        shard_size: int = 256,
        part: int = 0,
    ) -> None:
        self.directory = directory
        self.regions = regions
        self.dim = dim
        self.metadata: dict[str, Any] = json.loads(json.dumps({**metadata, "regions": regions, "dim": dim}))
        self.dtype = feature_type(self.metadata)
        self.shard_size = shard_size
        self.part = part
        self.written: list[str] = []
        for path in sorted(directory.glob(f"{part:03d}-*.arrow")):
            shard = read_shard(path)
            check_same_metadata(path, shard.metadata, self.metadata)
            self.written += shard.image_ids
            self._shard = int(path.stem.split("-")[1]) + 1
        if not self.written:
            self._shard = 0
        self._disk = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._image_ids: list[str] = []
        self._features = np.zeros((self.shard_size, self.regions, self.dim), self.dtype)
        self._boxes = np.zeros((self.shard_size, self.regions, 4), np.float32)
        self._scores = np.zeros((self.shard_size, self.regions), np.float32)
        self._counts = np.zeros(self.shard_size, np.int32)

    def add(
        self,
        image_id: str,
        features: NDArray[np.floating[Any]],
        boxes: NDArray[np.floating[Any]] | None = None,
        scores: NDArray[np.floating[Any]] | None = None,
    ) -> None:
        """Add an image.

        Args:
            features: (r, D), r <= R; finite, and within float16's +-65504; whole numbers from 0 to 255 if the
                metadata say ``"dtype": "uint8"``.
            boxes: (r, 4), x0 y0 x1 y1 in [0, 1]; None where the source has none.
            scores: (r,); None means 1.

        Raises:
            ValueError: a shape, a feature or a box is not as said; names the image.
        """
        try:
            stored = self._stored(image_id, features, boxes, scores)
        except ValueError:
            self._wait()  # what was complete before is on the disk
            raise
        count = len(features)
        at = len(self._image_ids)
        self._features[at, :count] = stored
        self._boxes[at, :count] = np.nan if boxes is None else boxes.clip(0, 1)
        self._scores[at, :count] = 1 if scores is None else scores
        self._counts[at] = count
        self._image_ids.append(image_id)
        if len(self._image_ids) == self.shard_size:
            self._flush()

    def _stored(
        self,
        image_id: str,
        features: NDArray[np.floating[Any]],
        boxes: NDArray[np.floating[Any]] | None,
        scores: NDArray[np.floating[Any]] | None,
    ) -> NDArray[Any]:
        """The features as the store has them, when all is as ``add`` says."""
        count = len(features)
        if features.ndim != 2 or count > self.regions or features.shape[1] != self.dim:
            raise ValueError(
                f"features of image {image_id!r} are {features.shape}, expected at most "
                f"{self.regions} regions x {self.dim}"
            )
        with np.errstate(over="ignore"):
            stored = features.astype(self.dtype)
        if not _all_finite(stored):
            region, feature = np.argwhere(~np.isfinite(stored))[0]
            raise ValueError(
                f"features of image {image_id!r} are not finite: region {region}, feature {feature} is "
                f"{features[region, feature]}, and float16 spans +-65504. Check the weights and the image"
            )
        if boxes is not None:
            _check_boxes(image_id, boxes, count)
        if scores is not None and scores.shape != (count,):
            raise ValueError(
                f"scores of image {image_id!r} are {scores.shape}, expected one for each of {count} regions"
            )
        return stored

    def close(self) -> None:
        """Write the last shard, which may be smaller, and wait until it is on the disk."""
        if self._image_ids:
            self._flush()
        self._wait()

    def __enter__(self) -> "FeatureWriter":
        """Close at the end, unless there was an error: then what is not yet a full shard is left out."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._wait()

    def _flush(self) -> None:
        self._wait()
        count = len(self._image_ids)
        columns = {
            "image_id": pa.array(self._image_ids, pa.string()),
            "features": _fixed_size_list(self._features[:count]),
            "boxes": _fixed_size_list(self._boxes[:count]),
            "scores": _fixed_size_list(self._scores[:count]),
            "regions": pa.array(self._counts[:count]),
        }
        path = self.directory / f"{self.part:03d}-{self._shard:05d}.arrow"
        self._writing = self._disk.submit(self._write, path, pa.record_batch(columns))
        self.written += self._image_ids
        self._shard += 1
        self._begin()

    def _write(self, path: Path, batch: pa.RecordBatch) -> None:
        schema = batch.schema.with_metadata({METADATA: json.dumps(self.metadata, sort_keys=True).encode()})
        aside = path.with_suffix(".new")
        with aside.open("wb") as file:
            with pa.ipc.new_file(file, schema) as writer:
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)

    def _wait(self) -> None:
        """Wait for the shard before, and raise what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def _all_finite(values: NDArray[Any]) -> bool:
    """``isfinite`` of float16, which NumPy computes in software, by the bits: an exponent of ones is inf or NaN."""
    if values.dtype != np.float16:
        return True
    exponent = np.uint16(0x7C00)
    return not bool(((values.view(np.uint16) & exponent) == exponent).any())


def _fixed_size_list(values: NDArray[Any]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), int(np.prod(values.shape[1:])))


def _check_boxes(image_id: str, boxes: NDArray[np.floating[Any]], count: int) -> None:
    if boxes.shape != (count, 4):
        raise ValueError(f"boxes of image {image_id!r} are {boxes.shape}, expected {(count, 4)}")
    rounding = 1e-4
    inside = (boxes >= -rounding).all(1) & (boxes <= 1 + rounding).all(1)
    wrong = ~(inside & (boxes[:, 0] <= boxes[:, 2]) & (boxes[:, 1] <= boxes[:, 3]))
    if wrong.any():
        region = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"box {region} of image {image_id!r} is {boxes[region].tolist()}, expected x0 <= x1 and y0 <= y1 in "
            "[0, 1], relative to the image's width and height"
        )
