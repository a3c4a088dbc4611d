"""Vectors of a collection or an index in files, arrays in files, and unit vectors."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Vectors:
    """The vectors (N, D) float16 of N items in shards, by their place (N,); a deleted item has
    place -1 and zeros."""

    def __init__(
        self,
        shards: Sequence[NDArray[np.float16]],
        shard: NDArray[Any],
        row: NDArray[Any],
        dimension: int,
    ) -> None:
        self._shards, self._shard, self._row = shards, shard, row
        self.shape = len(shard), dimension

    def __len__(self) -> int:
        """Return N."""
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[np.float16]:
        """Return the vectors of rows, as an array of NumPy does: a number, a slice, a list, or a
        mask."""
        shard, row = self._shard[rows], self._row[rows]
        if np.ndim(shard) == 0:
            vector: NDArray[np.float16] = self._gather(np.array([shard]), np.array([row]))[0]
            return vector
        return self._gather(shard, row)

    def take(self, rows: NDArray[np.int64], axis: int) -> NDArray[np.float16]:
        """Return the vectors (n, d) of rows (n,), as an array of NumPy does."""
        return self[rows]

    def batches(self, size: int) -> Iterator[NDArray[np.float16]]:
        """Yield the vectors of ``size`` items each, in order; a batch within one shard is a view of
        the file."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def _gather(self, shard: NDArray[Any], row: NDArray[Any]) -> NDArray[np.float16]:
        if len(shard) and shard[0] >= 0 and (shard == shard[0]).all() and (np.diff(row) == 1).all():
            view: NDArray[np.float16] = self._shards[shard[0]][row[0] : row[-1] + 1]
            return view
        vectors = np.zeros((len(shard), self.shape[1]), np.float16)
        for number in np.unique(shard[shard >= 0]):
            here = shard == number
            vectors[here] = self._shards[number][row[here]]
        return vectors


class FileVectors:
    """Vectors (N, d) float16 in a file: slices are mapped, single rows read, because mapping keeps
    nearby pages."""

    def __init__(self, file: Path, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.mapped: NDArray[np.float16] = np.zeros(shape, dtype=np.float16)
        if len(self):  # an empty file cannot be mapped
            self.mapped = np.memmap(file, dtype=np.float16, mode="r", shape=shape).view(np.ndarray)
        self._file = file.open("rb", buffering=0)

    def __len__(self) -> int:
        """Return N."""
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[np.float16]:
        """Return the vectors of rows, as a NumPy array does; a slice is a view of the file."""
        vectors: NDArray[np.float16] = self.mapped[rows]
        return vectors

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.mapped, dtype=dtype)

    def take(self, rows: NDArray[np.int64], axis: int) -> NDArray[np.float16]:
        """Return the vectors (n, d) of rows (n,), read from the file, as an array of NumPy does."""
        size = 2 * self.shape[1]
        read = [os.pread(self._file.fileno(), size, size * row) for row in rows.tolist()]
        return np.frombuffer(b"".join(read), np.float16).reshape(len(rows), self.shape[1])


def save_array(file: Path, array: NDArray[Any]) -> None:
    """Write ``array`` to ``file`` in the format of ``numpy.save``.

    ``numpy.save`` reports a full disk as "1024 requested and 992 written", without its reason.
    """
    with file.open("wb") as opened:
        np.save(_Writer(opened), array)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; ``combine_chunks`` copies a column that has one chunk
    already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class _Writer:
    """A file without a descriptor: numpy then calls ``write`` instead of C's ``fwrite``, whose
    ``errno`` it drops."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write
