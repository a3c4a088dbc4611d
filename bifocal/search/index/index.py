"""Index of a collection: batches of queries, exact or approximate search, filters, changes. Needs no torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bifocal.search.calibration.calibration import DEPTH, Calibration
from bifocal.search.filters import matching_rows
from bifocal.search.hits import SearchHit
from bifocal.search.index.approximate import ApproximateIndex
from bifocal.search.index.exact import mapped, nearest_rows, rank
from bifocal.search.index.files import read_index, write_index
from bifocal.search.index.format import IndexDescription
from bifocal.search.vectors import unit_vectors

Array = NDArray[Any]
EXACT_SHARE = 0.05
"""Share of items that fulfill a filter below which an approximate index searches them exactly."""
FILTER_POWER = 2
"""The effort of an approximate search grows with this power of the inverse share of items that fulfill its filter."""


class SearchIndex:
    """Vectors and metadata of the N items of a collection.

    Args:
        items: table with the column ``item_id``, and metadata in columns ``meta.<name>``.
        vectors: (N, d) of unit norm: an array, a memory-mapped file, or the ``Vectors`` of a collection.
        bias: (N,), added to the scores of corrected searches, see ``bifocal.hubness``; None for no correction.
        description: model, preprocessing and parameters; None if unknown.
        approximate: index of faiss over the vectors; None for exact search.
        removed: (N,) bool, True for removed items, which no search returns; None for none.
        calibration: gives each result its probability; None for none.

    Raises:
        ValueError: the numbers of items, vectors and biases differ, or an id occurs twice.

    Example:
        >>> index = SearchIndex.of(["sea", "wood"], np.array([[1.0, 0.0], [0.0, 1.0]]))
        >>> [hit.item_id for hit in index.search(np.array([[0.6, 0.8]]), k=2)[0]]
        ['wood', 'sea']
    """

    def __init__(
        self,
        items: pa.Table,
        vectors: Any,
        bias: Array | None = None,
        description: IndexDescription | None = None,
        approximate: ApproximateIndex | None = None,
        removed: Array | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        count = len(items)
        self.items, self.vectors, self.bias, self.approximate = items, vectors, bias, approximate
        self.calibration = calibration
        self.removed = np.zeros(count, dtype=bool) if removed is None else removed
        self.description = replace(description or IndexDescription(vectors.shape[1], count), count=count)
        self.ids: list[str] = items["item_id"].to_pylist()
        self._row = {item_id: row for row, item_id in enumerate(self.ids) if not self.removed[row]}
        if count != len(vectors) or len(self._row) != count - self.removed.sum():
            raise ValueError(
                f"{count} ids, {len(self._row)} of them different, and {len(vectors)} vectors: give each "
                "vector its own id"
            )
        if bias is not None and bias.shape != (count,):
            raise ValueError(f"bias {bias.shape}, expected ({count},): one number per item")

    @classmethod
    def of(cls, item_ids: Sequence[str], vectors: Any, bias: Any = None) -> "SearchIndex":
        """Return an exact index in memory of vectors (N, d), which are normalized and rounded to float16.

        Args:
            vectors: an array, or a tensor of torch on the CPU.
            bias: (N,), see the class.

        Raises:
            ValueError: a vector is zero or not finite.
        """
        unit = unit_vectors(np.asarray(vectors))
        table = pa.table({"item_id": pa.array([str(item_id) for item_id in item_ids], pa.string())})
        return cls(table, unit.astype(np.float16), None if bias is None else np.asarray(bias, dtype=np.float32))

    def __len__(self) -> int:
        """Return the number of items that are not removed."""
        return len(self._row)

    def row(self, item_id: str) -> int:
        """Return the row of an item.

        Raises:
            ValueError: the index does not have the item.
        """
        if item_id not in self._row:
            raise ValueError(f"the index has no item {item_id!r} among its {len(self)}; search with its vector")
        return self._row[item_id]

    def vector(self, item_id: str) -> NDArray[np.float32]:
        """Return the vector (d,) of an item.

        Raises:
            ValueError: the index does not have the item.
        """
        return np.asarray(self.vectors[self.row(item_id)], dtype=np.float32)

    def search(
        self,
        vectors: Any,
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        exclude: Sequence[str] = (),
        corrected: bool = False,
        relevant: bool = False,
    ) -> list[list[SearchHit]]:
        """Return the ``k`` items of the highest cosine with each query, best first; equal scores by their row.

        Args:
            vectors: queries (Q, d); their norms do not matter.
            where: filter of the metadata, see ``bifocal.search.filters.matching_rows``.
            offset: best items to leave out, such as those of former pages.
            exclude: ids of items to leave out, such as the query image.
            corrected: order by the cosine plus the bias of each item, if the index has biases. They are meant for
                sentences as queries.
            relevant: return only results whose probability reaches the threshold of the calibration: none if nothing
                was found.

        Raises:
            ValueError: a query has another dimension, is zero or not finite; ``k`` or ``offset`` is out of range; the
                filter does not fit the metadata; or the index is not calibrated and ``relevant`` is true.
        """
        if relevant and self.calibration is None:
            raise ValueError("the index is not calibrated: build it with held-out captions")
        if k < 1 or offset < 0:
            raise ValueError(f"k is {k} and offset {offset}: expected at least 1 and 0")
        queries = unit_vectors(vectors, self.description.dimension)
        allowed = self.allowed(where, exclude)
        count = offset + k if self.calibration is None else max(offset + k, DEPTH)
        rows, scores = self.nearest(queries, count, allowed, self.bias if corrected else None)
        probabilities = np.full(scores.shape, np.nan)
        if self.calibration is not None:
            probabilities = self.calibration.probabilities(self.with_bias(rows, scores) if corrected else scores)
            rows = np.where(probabilities >= self.calibration.threshold, rows, -1) if relevant else rows
        page = slice(offset, offset + k)
        return [
            self._hits(*found) for found in zip(rows[:, page], scores[:, page], probabilities[:, page], strict=True)
        ]

    def with_bias(self, rows: Array, scores: Array) -> Array:
        """Return scores plus the biases of their rows: what orders the results of a corrected search."""
        return scores if self.bias is None else scores + self.bias[np.maximum(rows, 0)]

    def _hits(self, rows: Array, scores: Array, probabilities: Array) -> list[SearchHit]:
        found = zip(rows.tolist(), scores.tolist(), probabilities.tolist(), strict=True)
        calibrated = self.calibration is not None
        return [SearchHit(row, self.ids[row], score, p if calibrated else None) for row, score, p in found if row >= 0]

    def nearest(
        self, queries: Array, count: int, allowed: Array | None, bias: Array | None, *, exact: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return rows, -1 where there are fewer, and scores, both (Q, at most ``count``), of unit queries (Q, d).

        Args:
            allowed: (N,) bool, items that may be returned; None for all.
            bias: (N,), see the class.
            exact: whether to leave the index of faiss out.
        """
        possible = len(self.ids) if allowed is None else int(allowed.sum())
        count = min(count, possible)
        vectors = self.vectors
        if self.approximate is None or exact or possible < EXACT_SHARE * len(self.ids):
            vectors = mapped(self.vectors)
            candidates = nearest_rows(vectors, queries, count, bias, allowed)
        else:
            candidates = self._candidates(queries, count, allowed, possible)
            few = (candidates >= 0).sum(axis=1) < count
            if few.any():  # faiss has too few items in the lists that it searched
                found = nearest_rows(self.vectors, queries[few], count, bias, allowed)
                candidates = np.pad(candidates, [(0, 0), (0, found.shape[1])], constant_values=-1)
                candidates[few] = -1
                candidates[few, : found.shape[1]] = found
        scores, rows = rank(vectors, queries, candidates, count, bias)
        return rows, scores

    def _candidates(self, queries: Array, count: int, allowed: Array | None, possible: int) -> Array:
        """Return candidates (Q, C) of faiss; -1 where there are fewer."""
        assert self.approximate is not None
        # The items of a filter may be far from the query, in lists that a search without a filter leaves out.
        more = len(self.ids) / max(possible, 1)
        effort = None if self.description.effort is None else math.ceil(self.description.effort * more**FILTER_POWER)
        wanted = int(self.description.candidates * count * more)
        rows = self.approximate.search(queries, min(wanted, len(self.ids)), effort)
        if allowed is not None:
            rows = np.where((rows >= 0) & allowed[np.maximum(rows, 0)], rows, -1)
        return rows

    def allowed(self, where: Mapping[str, Any] | None = None, exclude: Sequence[str] = ()) -> Array | None:
        """Return which items (N,) a search with this filter may return; None for all. See ``search``."""
        if not where and not exclude and not self.removed.any():
            return None
        allowed = matching_rows(self.items, where or {}) & ~self.removed
        allowed[[self.row(item_id) for item_id in exclude]] = False
        return allowed

    @property
    def removed_share(self) -> float:
        """Share of removed items among all rows."""
        return float(self.removed.mean()) if len(self.removed) else 0.0

    def write(self, directory: Path) -> None:
        """Write the files of the index to an existing directory; ``index.json`` is the last one."""
        write_index(self, directory)

    @classmethod
    def open(cls, directory: Path, model: str | None = None) -> "SearchIndex":
        """Open an index; its vectors and the index of faiss are memory-mapped.

        Args:
            model: SHA-256 of the model that computes the queries, see ``bifocal.serving.identity.model_hash``; None to
                compare it with nothing.

        Raises:
            FileNotFoundError: the directory holds no index.
            ValueError: the index belongs to another model, or another version of bifocal wrote it.
        """
        return cls(*read_index(directory, model))
