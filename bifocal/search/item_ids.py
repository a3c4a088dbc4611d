"""Ids of the items of a collection or an index, and the rows of the ids."""

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bifocal.search.arrays import one_chunk


class ItemIds(Sequence[str]):
    """The ids of N rows; an id is found by its hash, in 16 bytes per row where a dictionary takes about 200.

    Args:
        column: the ids.
        removed: (N,) bool, rows that have no item any more; None for none.
        known: the same ids with no row removed, which are not hashed and sorted again.

    Attributes:
        present: number of items that are not removed.
        different: number of their different ids.
    """

    _rows: NDArray[np.int64]
    _hashes: NDArray[np.int64]
    present: int
    different: int

    def __init__(
        self, column: pa.ChunkedArray, removed: NDArray[np.bool_] | None = None, known: "ItemIds | None" = None
    ) -> None:
        self._ids, self._removed = one_chunk(column), np.zeros(len(column), bool) if removed is None else removed
        if known is not None and not self._removed.any():
            self._rows, self._hashes = known._rows, known._hashes
            self.present, self.different = known.present, known.different
            return
        if known is None:
            hashes = np.fromiter(map(hash, self._ids.to_pylist()), np.int64, len(column))
            rows = np.argsort(hashes, kind="stable")
            hashes = hashes[rows]
        else:
            hashes, rows = known._hashes, known._rows
        kept = ~self._removed[rows]
        self._rows, self._hashes = rows[kept], hashes[kept]
        repeated = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        same_hash = [self[row] for row in self._rows[np.union1d(repeated, repeated + 1)].tolist()]
        self.present = len(self._rows)
        self.different = self.present - len(same_hash) + len(set(same_hash))

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

    def items(self) -> Iterator[str]:
        """Iterate over the ids of the items that are not removed."""
        return compress(self, ~self._removed)

    def row(self, item_id: object) -> int | None:
        """Return the row of an item; None for an unknown or removed one."""
        wanted = hash(item_id)
        for place in range(int(np.searchsorted(self._hashes, wanted)), len(self._hashes)):
            if self._hashes[place] != wanted:
                return None
            if self[row := int(self._rows[place])] == item_id:
                return row
        return None
