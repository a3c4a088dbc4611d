"""An update of a collection: the items that it takes over, without reading the files of unchanged images."""

from collections.abc import Collection as Container
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import ITEMS_SCHEMA, PART_SCHEMA
from bifocal.search.collection.sources import Entry
from bifocal.search.collection.stat_cache import STATE_FIELDS, read_states, same_states
from bifocal.search.collection.writer import Item

ITEM = ("item_id", "image", "sha256", "width", "height")


class CollectionUpdate:
    """Collection and n entries of its update: their ``rows`` (n,) in it, -1 for new images, and ``unchanged`` (n,)."""

    def __init__(self, collection: Collection | None, entries: Sequence[Entry], states: NDArray[np.int64]) -> None:
        self.collection, self._entries, self._states = collection, entries, states
        self.rows: NDArray[np.int64] = np.full(len(entries), -1)
        self.unchanged: NDArray[np.bool_] = np.zeros(len(entries), bool)
        self._items = ITEMS_SCHEMA.empty_table().select(ITEM)
        if collection is not None:
            self._items = collection.items.select(ITEM).combine_chunks()
            self._compare(collection)

    def _compare(self, collection: Collection) -> None:
        ids = pa.array([entry.item_id for entry in self._entries], pa.string())
        found = pc.index_in(ids, value_set=self._items.column("item_id")).fill_null(-1).to_numpy()
        self.rows = np.where(np.append(collection.deleted, True)[found], -1, found).astype(np.int64)
        given = pa.array([entry.sha256 for entry in self._entries], pa.string())
        former = self._items.column("sha256").take(pa.array(self.rows, mask=self.rows < 0))
        same_hash = pc.equal(given, former).fill_null(False).to_numpy()
        stored = read_states(collection.directory, self._items.column("item_id"))
        # Without a hash of the source, the state of the file decides; -1 is any row then, and counts as changed.
        same_file = given.is_null().to_numpy(zero_copy_only=False) & same_states(stored[self.rows], self._states)
        self.unchanged = (self.rows >= 0) & (same_hash | same_file)

    def item(self, position: int) -> Item:
        """Return the former item of an entry, with the image and the state that the entry has now."""
        entry, row = self._entries[position], int(self.rows[position])
        sha256, width, height = (self._values[name][row] for name in ("sha256", "width", "height"))
        return Item(entry.item_id, entry.image, sha256, width, height, self.state(position))

    @cached_property
    def _values(self) -> dict[str, list[Any]]:
        """The columns as lists: a value of a column costs more to take."""
        columns: dict[str, list[Any]] = self._items.to_pydict()
        return columns

    def state(self, position: int) -> tuple[int, ...]:
        """Return the state of the file of an entry."""
        return tuple(self._states[position].tolist())

    def sha256(self, position: int) -> str | None:
        """Return the SHA-256 of the former image of an entry; None for a new image."""
        row = self.rows[position]
        return None if row < 0 else str(self._values["sha256"][row])

    def whole_shards(self, waiting: NDArray[np.bool_], least: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield unchanged, ``waiting`` shards of at least ``least`` vectors, so that updates make few small files."""
        if self.collection is None:
            return
        mine = np.flatnonzero(self.unchanged & waiting)
        shard, row = (self.collection.items.column(name).to_numpy()[self.rows[mine]] for name in ("shard", "row"))
        order = np.lexsort((row, shard))
        starts = np.searchsorted(shard[order], np.arange(len(self.collection.description.shards) + 1))
        for number, size in enumerate(self.collection.description.shards):
            if starts[number + 1] - starts[number] == size >= max(least, 1):
                yield number, mine[order[starts[number] : starts[number + 1]]]

    def gone(self, listed: Container[str] | None, rejected: Container[str]) -> list[Item]:
        """Return the items that are rejected or no longer listed; ``listed`` is None if another machine does this."""
        ids = self._items.column("item_id").to_pylist()
        rows = [
            row
            for row, item_id in enumerate(ids)
            if item_id in rejected or (listed is not None and item_id not in listed)
        ]
        return [Item(**row) for row in self._items.take(pa.array(rows, pa.int64())).to_pylist()]

    def items(self, positions: NDArray[np.int64]) -> pa.Table:
        """Return the former items of entries, with their present images, as a table of ``PART_SCHEMA``."""
        table = self._items.take(pa.array(self.rows[positions]))
        images = pa.array([self._entries[position].image for position in positions.tolist()], pa.string())
        table = table.set_column(1, "image", images)
        for field, column in zip(STATE_FIELDS, self._states[positions].T, strict=True):
            table = table.append_column(field, pa.array(column))
        return table.cast(PART_SCHEMA)
