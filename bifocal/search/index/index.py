"""Index of a collection: nearest items to vectors, exact or approximate, its changes and files.
Needs no torch."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.onnx.files import read_array, read_whole
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import read_table
from bifocal.search.filters import matching_rows
from bifocal.search.index.approximate import ApproximateIndex
from bifocal.search.index.exact import mapped, nearest_rows, rank, unit_vectors
from bifocal.search.index.files import (
    APPROXIMATE,
    BIAS,
    ITEMS,
    KEYWORDS,
    REMOVED,
    VECTORS,
    IndexDescription,
    without_values,
    write_vectors,
)
from bifocal.search.item_ids import ItemIds
from bifocal.search.keywords import Keywords, has_texts
from bifocal.search.vectors import FileVectors, save_array

Array = NDArray[Any]
EXACT_SHARE = 0.05
"""Share of items that fulfill a filter below which an approximate index searches them exactly."""
FILTER_POWER = 2
"""The effort of an approximate search grows with this power of the inverse share of items that
fulfill its filter."""


class SearchIndex:
    """Vectors and metadata of the N items of a collection, which ``Search`` searches.

    Args:
        items: table with the column ``item_id``, and metadata in columns ``meta.<name>``.
        vectors: (N, d) of unit norm: an array, a memory-mapped file, or the ``Vectors`` of a
            collection.
        bias: (N,), added to the scores of sentences, see ``bifocal.hubness``; None for no
            correction.
        description: model, preprocessing and parameters; None if unknown.
        approximate: index of faiss over the vectors; None for exact search.
        removed: (N,) bool, True for removed items, which no search returns; None for none.
        calibration: gives each result its probability; None for none.
        keywords: of the items, for the mode "hybrid"; None to build them in the first search.
        known: the ids of the items, if another index or a collection has sorted them already.

    Raises:
        ValueError: the numbers of items, vectors and biases differ, or an id occurs twice.
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
        keywords: Keywords | None = None,
        known: ItemIds | None = None,
    ) -> None:
        count = len(items)
        self.items, self.vectors, self.bias, self.approximate = items, vectors, bias, approximate
        self.calibration, self.keywords = calibration, keywords
        self.removed = (
            np.zeros(count, dtype=bool) if removed is None else np.array(removed)
        )  # ``remove`` changes it
        self._kept = ~self.removed
        self._count = int(np.count_nonzero(self._kept))
        self.description = replace(
            description or IndexDescription(vectors.shape[1], count), count=count
        )
        self.ids = ItemIds(items["item_id"]) if known is None else known
        if count != len(vectors) or self.ids.repeated(self._kept):
            different = self._count - self.ids.repeated(self._kept)
            raise ValueError(
                f"{count} ids, {different} of them different, and {len(vectors)} vectors: give "
                "each vector its own id"
            )
        if bias is not None and bias.shape != (count,):
            raise ValueError(f"bias {bias.shape}, expected ({count},): one number per item")

    @classmethod
    def of(cls, item_ids: Sequence[str], vectors: Any, bias: Any = None) -> "SearchIndex":
        """Return an exact index in memory of vectors (N, d), which are normalized and rounded to
        float16.

        Args:
            vectors: an array, or a tensor of torch on the CPU.
            bias: (N,), see the class.

        Raises:
            ValueError: a vector is zero or not finite.
        """
        unit = unit_vectors(np.asarray(vectors))
        table = pa.table({"item_id": pa.array([str(item_id) for item_id in item_ids], pa.string())})
        return cls(
            table,
            unit.astype(np.float16),
            None if bias is None else np.asarray(bias, dtype=np.float32),
        )

    def __len__(self) -> int:
        """Return the number of items that are not removed."""
        return self._count

    def __contains__(self, item_id: object) -> bool:
        """Return whether the index has an item."""
        return self.ids.row(item_id, self._kept) is not None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of the items that are not removed."""
        return compress(self.ids, self._kept)

    def row(self, item_id: str) -> int:
        """Return the row of an item.

        Raises:
            ValueError: the index does not have the item.
        """
        if (row := self.ids.row(item_id, self._kept)) is None:
            raise ValueError(
                f"the index has no item {item_id!r} among its {len(self)}; search with its vector"
            )
        return row

    def vector(self, item_id: str) -> NDArray[np.float32]:
        """Return the vector (d,) of an item.

        Raises:
            ValueError: the index does not have the item.
        """
        return np.asarray(self.vectors[self.row(item_id)], dtype=np.float32)

    def nearest(
        self,
        queries: Array,
        count: int,
        allowed: Array | None = None,
        *,
        corrected: bool = False,
        exact: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the rows of the highest scores and the scores, both (Q, at most ``count``), best
        first.

        A score is the cosine, plus the item's bias if ``corrected``; equal scores keep the order of
        their rows.

        Args:
            queries: (Q, d) float32 of unit norm.
            allowed: (N,) bool, items that may be returned; None for all. Where they are fewer, rows
                are -1.
            corrected: whether to add the biases, if the index has some.
            exact: whether to leave the index of faiss out.
        """
        bias = self.bias if corrected else None
        possible = len(self.items) if allowed is None else int(np.count_nonzero(allowed))
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

    def _candidates(
        self, queries: Array, count: int, allowed: Array | None, possible: int
    ) -> Array:
        """Return candidates (Q, C) of faiss; -1 where there are fewer."""
        assert self.approximate is not None
        # The items of a filter may be far from the query, in lists that a search without a filter
        # leaves out.
        more = len(self.ids) / max(possible, 1)
        effort = (
            None
            if self.description.effort is None
            else math.ceil(self.description.effort * more**FILTER_POWER)
        )
        wanted = int(self.description.candidates * count * more)
        rows = self.approximate.search(queries, min(wanted, len(self.ids)), effort)
        if allowed is not None:
            rows = np.where((rows >= 0) & allowed[np.maximum(rows, 0)], rows, -1)
        return rows

    def allowed(
        self, where: Mapping[str, Any] | None = None, exclude: Sequence[str] = ()
    ) -> Array | None:
        """Return which items (N,) a search with a filter may return; None for all.

        Args:
            where: see ``bifocal.search.filters.matching_rows``.
            exclude: ids of items to leave out.
        """
        if not where and not exclude and self._count == len(self.removed):
            return None
        allowed: Array = matching_rows(self.items, where or {}) & self._kept
        allowed[[self.row(item_id) for item_id in exclude]] = False
        return allowed

    def remove(self, item_ids: Iterable[str]) -> None:
        """Remove items from this index in memory, if it has them; a search that has begun may still
        return them."""
        for item_id in item_ids:
            if (row := self.ids.row(item_id, self._kept)) is not None:
                self.removed[row], self._kept[row] = True, False
                self._count -= 1

    def without_items(self, item_ids: Sequence[str]) -> "SearchIndex":
        """Return the index without some items, whose rows stay until it is built again.

        ``write`` writes zeros in place of their vectors and biases, and nulls in place of their
        metadata.

        Raises:
            ValueError: the index does not have an item.
        """
        removed = self.removed.copy()
        removed[[self.row(item_id) for item_id in item_ids]] = True
        return SearchIndex(
            self.items,
            self.vectors,
            self.bias,
            self.description,
            self.approximate,
            removed,
            self.calibration,
            self.keywords,
            self.ids,
        )

    def files(self) -> dict[str, Callable[[Path], object]]:
        """Return functions that write the tables of the index, by their names; only the ids of
        removed items stay."""
        items, removed, approximate = (
            without_values(self.items, self.removed),
            self.removed,
            self.approximate,
        )
        files: dict[str, Callable[[Path], object]] = {ITEMS: partial(pq.write_table, items)}
        if has_texts(items):
            files[KEYWORDS] = Keywords.of(items).write
        files[VECTORS] = partial(write_vectors, self.vectors, removed)
        if self.bias is not None:
            files[BIAS] = partial(save_array, array=np.where(removed, np.float32(0), self.bias))
        if approximate is not None and removed.any():
            approximate = approximate.without(np.flatnonzero(removed))
            if approximate is None:
                kept = np.where(removed[:, None], np.float16(0), self.vectors[:])
                approximate = ApproximateIndex.build(kept, str(self.description.factory))
        if approximate is not None:
            files[APPROXIMATE] = approximate.write
        return files | {REMOVED: partial(save_array, array=removed)}

    def write(self, directory: Path) -> None:
        """Write the index to an existing directory; ``index.json`` is the last file."""
        for name, write in self.files().items():
            write(directory / name)
        if self.calibration is not None:
            self.calibration.write(directory)
        self.description.write(directory)

    @classmethod
    def open(
        cls, directory: Path, model: str | None = None, collection: Collection | None = None
    ) -> "SearchIndex":
        """Open an index; its vectors, keywords and index of faiss are memory-mapped.

        Args:
            model: SHA-256 of the model that computes the queries, see
                ``bifocal.onnx.files.model_hash``; None to compare it with nothing.
            collection: shares its items with the index if both have the same ids in the same rows;
                None for none.

        Raises:
            FileNotFoundError: the directory holds no index.
            ValueError: the index belongs to another model, or another version of bifocal wrote it.
        """
        description = IndexDescription.read(directory)
        if model is not None:
            description.check_model(model, directory)
        count, shape = description.count, (description.count, description.dimension)
        shared = collection is not None and read_table(directory / ITEMS, ["item_id"])[
            "item_id"
        ].equals(collection.items["item_id"])
        items = (
            collection.facts if collection is not None and shared else read_table(directory / ITEMS)
        )
        vectors = read_whole(directory / VECTORS, lambda file: FileVectors(file, shape))
        bias = read_array(directory / BIAS) if (directory / BIAS).is_file() else None
        approximate = None
        if description.factory is not None:
            opened = partial(ApproximateIndex.open, dimension=description.dimension)
            approximate = read_whole(directory / APPROXIMATE, opened)
        removed, keywords = read_array(directory / REMOVED), None
        if (directory / KEYWORDS).is_file():
            keywords = read_whole(directory / KEYWORDS, partial(Keywords.open, count=count))
        for file, part in ((ITEMS, items), (BIAS, bias), (REMOVED, removed)):
            if part is not None and len(part) != count:
                raise ValueError(
                    f"{directory / file} has {len(part)} rows, expected {count}: copy it again"
                )
        known = collection.lookup if collection is not None and shared else None
        calibration = Calibration.read(directory)
        return cls(
            items, vectors, bias, description, approximate, removed, calibration, keywords, known
        )
