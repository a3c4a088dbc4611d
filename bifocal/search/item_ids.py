"""Ids of the items of a collection or an index, and the rows of the ids."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bifocal.search.vectors import one_chunk


class ItemIds(Sequence[str]):
    """The ids of N rows; an id is found by its hash, in 16 bytes per row where a dictionary takes
    about 130."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._ids = one_chunk(column)
        hashes = np.fromiter(map(hash, self._ids.to_pylist()), np.int64, len(column))
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def __len__(self) -> int:
        """Return N."""
        return len(self._ids)

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        """Return the id of a row, or the ids of some rows."""
        found: Any = self._ids[row]
        ids: str | list[str] = found.to_pylist() if isinstance(row, slice) else found.as_py()
        return ids

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of all rows."""
        return iter(self._ids.to_pylist())

    def row(self, item_id: object, kept: NDArray[np.bool_] | None = None) -> int | None:
        """Return the first row of an id among the rows ``kept`` (N,), None for all; None for an
        unknown id."""
        first, last = (
            np.searchsorted(self._hashes, hash(item_id), side) for side in ("left", "right")
        )
        rows: list[int] = self._order[first:last].tolist()
        return next(
            (row for row in rows if (kept is None or kept[row]) and self[row] == item_id), None
        )

    def repeated(self, kept: NDArray[np.bool_] | None = None) -> int:
        """Return how many rows have the id of an earlier one, among the rows ``kept`` (N,); None
        for all."""
        order, hashes = self._order, self._hashes
        if kept is not None:
            order, hashes = order[kept[order]], hashes[kept[order]]
        same = np.flatnonzero(hashes[1:] == hashes[:-1])
        ids = [self[row] for row in order[np.union1d(same, same + 1)].tolist()]
        return len(ids) - len(set(ids))
