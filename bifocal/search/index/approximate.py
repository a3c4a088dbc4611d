"""Approximate search with faiss: the index for a collection, and its candidates for queries."""

import re
import shutil
import threading
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.version import install

Array = NDArray[Any]
NUMBERS_PER_MS = 300_000
"""Numbers of float16 that exact search compares with one query per millisecond on one core, as an
estimate."""
TRAINING_PER_LIST = 64
"""Vectors that a list of an inverted file is trained with; faiss asks for at least 39."""
BATCH = 65_536
ID_BYTES = 8
"""Bytes of an id in an inverted file."""
FAST_SCAN = 11
"""Way of the fast scan that takes a query alone, its nearest lists first: the least time for one
query and for a batch, and the same candidates."""
LISTS, FAST_LISTS = 4.0, 1.6
"""Lists of an inverted file, times the root of the number of vectors; comparing codes of 4 bits in
registers (fast scan) is cheap, so its lists are longer."""


def choose_factory(count: int, dimension: int, memory_mb: float, latency_ms: float) -> str | None:
    """Return the ``index_factory`` string for N vectors of dimension d; None for exact search, if
    its vectors fit into the memory and a query into the latency.
    """
    if (
        2 * count * dimension <= 1e6 * memory_mb
        and count * dimension <= NUMBERS_PER_MS * latency_ms
    ):
        return None
    budget = 1e6 * memory_mb / max(count, 1) - ID_BYTES
    is_fast = dimension % 2 == 0 and dimension <= 4 * budget
    wanted = (FAST_LISTS if is_fast else LISTS) * count**0.5
    lists = max(1, min(int(wanted), count // TRAINING_PER_LIST))
    if is_fast:
        return f"IVF{lists},PQ{dimension // 2}x4fs"
    if dimension <= budget:
        return f"IVF{lists},SQ8"
    sizes = [
        size for size in range(8, dimension + 1, 8) if dimension % size == 0 and size <= budget
    ]
    if not sizes:
        raise ValueError(
            f"{count} vectors do not fit into {memory_mb:g} MB: a product quantizer whose size "
            f"divides {dimension} needs at least {count * (8 + ID_BYTES) / 1e6:.0f} MB"
        )
    return f"IVF{lists},PQ{max(sizes)}"


class ApproximateIndex:
    """An index of faiss over unit vectors, by the inner product; ``file`` is the file that it is
    mapped from."""

    def __init__(self, index: Any, file: Path | None = None) -> None:
        self._index, self._file, self._faiss = index, file, import_faiss()
        if hasattr(index, "implem"):
            index.implem = FAST_SCAN
        self._lock = threading.Lock()

    @classmethod
    def build(cls, vectors: Array, factory: str, seed: int = 0) -> "ApproximateIndex":
        """Train and fill an index for vectors (N, d); ``seed`` draws the vectors that train it."""
        faiss = import_faiss()
        count, dimension = vectors.shape
        try:
            index = _new_index(faiss, dimension, factory)
            inverted = faiss.try_extract_index_ivf(index)
            wanted = max(BATCH, TRAINING_PER_LIST * (inverted.nlist if inverted is not None else 0))
            rows = np.sort(np.random.default_rng(seed).permutation(count)[:wanted])
            index.train(vectors[rows].astype(np.float32))
        except RuntimeError as error:
            reason = str(error).rpartition("Error: ")[2]
            raise ValueError(
                f"faiss cannot build {factory!r} for {count} vectors of {dimension}: {reason}"
            ) from error
        for start in range(0, count, BATCH):
            index.add(np.ascontiguousarray(vectors[start : start + BATCH], dtype=np.float32))
        return cls(index)

    def without(self, rows: Array) -> "ApproximateIndex | None":
        """Return a copy in memory without the codes of some rows; None if only a new build can
        remove them (HNSW)."""
        copy = (
            self._faiss.clone_index(self._index)
            if self._file is None
            else self._faiss.read_index(str(self._file))
        )
        kind = type(self._faiss.downcast_index(copy))
        can_remove = issubclass(kind, (self._faiss.IndexIVF, self._faiss.IndexPreTransform))
        if not can_remove or self._faiss.try_extract_index_ivf(copy) is None:
            return None
        copy.remove_ids(np.asarray(rows, dtype=np.int64))
        return ApproximateIndex(copy)

    def efforts(self) -> Iterator[int]:
        """Yield values for ``search``'s ``effort`` in increasing order; none if the index has no
        such parameter."""
        name, most = self._parameter
        if name is not None:
            yield from (2**power for power in range(most.bit_length()) if 2**power < most)
            yield most

    def search(self, queries: Array, count: int, effort: int | None) -> NDArray[np.int64]:
        """Return candidate rows (Q, count), -1 if fewer; ``effort`` is ``nprobe`` or ``efSearch``,
        None by default."""
        name, most = self._parameter
        if name is None or effort is None:
            return self._rows(queries, count)
        # Threads search with different efforts, so the index itself keeps its own where faiss
        # allows.
        index, value = self._index, min(effort, most)
        if isinstance(index, self._faiss.IndexIVF) or name == "efSearch":
            return self._rows(queries, count, params=_parameters(name, value))
        with self._lock:
            self._faiss.ParameterSpace().set_index_parameter(index, name, value)
            return self._rows(queries, count)

    def _rows(self, queries: Array, count: int, **parameters: Any) -> NDArray[np.int64]:
        rows: NDArray[np.int64] = self._index.search(queries, count, **parameters)[1]
        return rows

    @cached_property
    def _parameter(self) -> tuple[str | None, int]:
        inverted = self._faiss.try_extract_index_ivf(self._index)
        if inverted is not None:
            return "nprobe", int(inverted.nlist)
        return ("efSearch", 1024) if hasattr(self._index, "hnsw") else (None, 0)

    def write(self, file: Path) -> None:
        """Write the index for ``open``."""
        if self._file is None:
            self._faiss.write_index(self._index, str(file))
        else:  # faiss would write the name of the mapped file in place of its lists
            shutil.copyfile(self._file, file)

    @classmethod
    def open(cls, file: Path, dimension: int) -> "ApproximateIndex":
        """Map an index of vectors with a dimension from its file."""
        faiss = import_faiss()
        index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        if index.d != dimension:
            raise ValueError(f"dimension {index.d}, expected {dimension}")
        return cls(index, file)


def _new_index(faiss: Any, dimension: int, factory: str) -> Any:
    """Return an empty index by an ``index_factory`` string. ``Cut64,FACTORY`` compares the first 64
    numbers of each vector, divided by their norm.
    """
    cut = re.fullmatch(r"Cut(\d+),(.+)", factory)
    size, kind = (int(cut[1]), cut[2]) if cut else (dimension, factory)
    # Signs are compared by their Hamming distance, which faiss builds only for L2.
    metric = faiss.METRIC_L2 if kind.startswith("LSH") else faiss.METRIC_INNER_PRODUCT
    if cut is None:
        return faiss.index_factory(size, kind, metric)
    if not 0 < size < dimension:
        raise ValueError(
            f"{factory} cuts vectors of {dimension} numbers to {size}: give fewer, and at least 1"
        )
    index = faiss.IndexPreTransform(
        faiss.NormalizationTransform(size, 2.0), faiss.index_factory(size, kind, metric)
    )
    index.prepend_transform(faiss.RemapDimensionsTransform(dimension, size, False))
    return index


@cache
def _parameters(name: str, value: int) -> Any:
    kind = "IVF" if name == "nprobe" else "HNSW"
    return getattr(import_faiss(), f"SearchParameters{kind}")(**{name: value})


def import_faiss() -> Any:
    """Return the module faiss."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError(f"approximate search needs faiss: {install('faiss')}") from error
    return faiss
