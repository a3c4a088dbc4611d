"""Writer of the feature store."""

import json
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bifocal.durable import replace_file
from bifocal.features.store import METADATA, check_same_metadata, feature_type, open_store_file


class FeatureWriter:
    """Writer of a feature store; a file is renamed to its final name when it is complete.

    A file is written to disk while the next one fills, so at most two are in memory.

    To resume after a kill, open a writer on the same directory and add the images that are not in
    ``written``, in the same order: the files are then identical to the files of an uninterrupted
    run.

    Args:
        directory: of the files; must exist.
        regions: R, the maximum number of regions per image, ground-truth boxes included.
        dim: D, the dimension of a region's features.
        metadata: how the features were computed, as JSON can hold it. With ``"truth_regions": T``,
            the last T of the R regions are for ground-truth boxes.
        images_per_file: images in a file; a killed run loses at most the file in progress.
        shard: index of this share of the extraction, if several write the same store in parallel.

    Attributes:
        written: ids of the images in complete files.

    Raises:
        ValueError: the directory holds files of other features.
    """

    def __init__(
        self,
        directory: Path,
        *,
        regions: int,
        dim: int,
        metadata: Mapping[str, Any],
        images_per_file: int = 256,
        shard: int = 0,
    ) -> None:
        self.directory = directory
        self.regions = regions
        self.dim = dim
        self.metadata: dict[str, Any] = json.loads(
            json.dumps({**metadata, "regions": regions, "dim": dim})
        )
        self.truth_regions: int = self.metadata.get("truth_regions", 0)
        self.dtype = feature_type(self.metadata)
        self.images_per_file = images_per_file
        self.shard = shard
        self.written: list[str] = []
        self._file_index = 0
        for path in sorted(directory.glob(f"{shard:03d}-*.arrow")):
            file = open_store_file(path)
            check_same_metadata(path, file.metadata, self.metadata)
            self.written += file.image_ids
            self._file_index = int(path.stem.split("-")[1]) + 1
        self._executor = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        self._start_file()

    def _start_file(self) -> None:
        self._image_ids: list[str] = []
        self._features = np.zeros((self.images_per_file, self.regions, self.dim), self.dtype)
        self._boxes = np.zeros((self.images_per_file, self.regions, 4), np.float32)
        self._boxes[:, self.regions - self.truth_regions :] = np.nan
        self._scores = np.zeros((self.images_per_file, self.regions), np.float32)
        self._counts = np.zeros(self.images_per_file, np.int32)

    def add(
        self,
        image_id: str,
        features: NDArray[np.floating[Any]],
        boxes: NDArray[np.floating[Any]] | None = None,
        scores: NDArray[np.floating[Any]] | None = None,
        truth: int = 0,
    ) -> None:
        """Add an image.

        Args:
            features: (r, D), r <= R; finite, and within float16's +-65504; integers from 0 to 255
                if the metadata have ``"dtype": "uint8"``.
            boxes: (r, 4), x0 y0 x1 y1 in [0, 1]; None if the source has none.
            scores: (r,); None means 1.
            truth: how many of the regions, the last ones, are ground-truth boxes; at most
                ``truth_regions``.

        Raises:
            ValueError: a shape, a feature or a box is invalid; the message names the image.
        """
        try:
            stored = self._validated(image_id, features, boxes, scores, truth)
        except ValueError:
            self._wait()  # complete files must be on disk before the error stops the run
            raise
        count, first = len(features) - truth, self.regions - self.truth_regions
        row = len(self._image_ids)
        for target, part in (
            (slice(count), slice(count)),
            (slice(first, first + truth), slice(count, None)),
        ):
            self._features[row, target] = stored[part]
            self._boxes[row, target] = np.nan if boxes is None else boxes[part].clip(0, 1)
            self._scores[row, target] = 1 if scores is None else scores[part]
        self._counts[row] = count
        self._image_ids.append(image_id)
        if len(self._image_ids) == self.images_per_file:
            self._flush()

    def _validated(
        self,
        image_id: str,
        features: NDArray[np.floating[Any]],
        boxes: NDArray[np.floating[Any]] | None,
        scores: NDArray[np.floating[Any]] | None,
        truth: int,
    ) -> NDArray[Any]:
        """Return the features in the store's dtype, or raise ``ValueError``."""
        count, most = len(features), self.regions - self.truth_regions
        if features.ndim != 2 or count - truth > most or features.shape[1] != self.dim:
            raise ValueError(
                f"features of image {image_id!r} are {(count - truth, *features.shape[1:])}, "
                f"expected at most {most} regions x {self.dim}"
            )
        if truth > self.truth_regions:
            raise ValueError(
                f"image {image_id!r} has {truth} ground-truth boxes, expected at most "
                f"{self.truth_regions}: raise truth_regions"
            )
        with np.errstate(over="ignore"):
            stored = features.astype(self.dtype)
        if not _all_finite(stored):
            region, feature = np.argwhere(~np.isfinite(stored))[0]
            raise ValueError(
                f"features of image {image_id!r} are not finite: region {region}, feature "
                f"{feature} is {features[region, feature]}, and float16 spans +-65504. Check "
                "the weights and the image"
            )
        if boxes is not None:
            _check_boxes(image_id, boxes, count)
        if scores is not None and scores.shape != (count,):
            raise ValueError(
                f"scores of image {image_id!r} are {scores.shape}, expected one for each of "
                f"{count} regions"
            )
        return stored

    def close(self) -> None:
        """Write the last file, which may be smaller, and wait until it is on disk."""
        if self._image_ids:
            self._flush()
        self._wait()

    def __enter__(self) -> "FeatureWriter":
        """Close the writer at the end of the block; after an error, discard the incomplete file."""
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
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
        path = self.directory / f"{self.shard:03d}-{self._file_index:05d}.arrow"
        self._pending = self._executor.submit(self._write, path, pa.record_batch(columns))
        self.written += self._image_ids
        self._file_index += 1
        self._start_file()

    def _write(self, path: Path, batch: pa.RecordBatch) -> None:
        schema = batch.schema.with_metadata(
            {METADATA: json.dumps(self.metadata, sort_keys=True).encode()}
        )

        def write(aside: Path) -> None:
            with aside.open("wb") as file, pa.ipc.new_file(file, schema) as writer:
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))

        replace_file(path, write)

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def _all_finite(values: NDArray[Any]) -> bool:
    if values.dtype != np.float16:
        return True
    # NumPy's isfinite of float16 runs in software: test the bits, an exponent of ones is inf or
    # NaN.
    exponent = np.uint16(0x7C00)
    return not bool(((values.view(np.uint16) & exponent) == exponent).any())


def _fixed_size_list(values: NDArray[Any]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(
        pa.array(values.reshape(-1)), int(np.prod(values.shape[1:]))
    )


def _check_boxes(image_id: str, boxes: NDArray[np.floating[Any]], count: int) -> None:
    if boxes.shape != (count, 4):
        raise ValueError(f"boxes of image {image_id!r} are {boxes.shape}, expected {(count, 4)}")
    rounding = 1e-4
    inside = (boxes >= -rounding).all(1) & (boxes <= 1 + rounding).all(1)
    wrong = ~(inside & (boxes[:, 0] <= boxes[:, 2]) & (boxes[:, 1] <= boxes[:, 3]))
    if wrong.any():
        region = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"box {region} of image {image_id!r} is {boxes[region].tolist()}, expected x0 <= "
            "x1 and y0 <= y1 in [0, 1], relative to the image's width and height"
        )
