"""An update of a collection: what it takes over from a previous one, and from a killed run."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.datasets.base import META
from bifocal.datasets.tables import with_type
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import (
    DATE,
    FIELDS,
    ITEM,
    ITEMS_SCHEMA,
    PART_SCHEMA,
    STATE_FIELDS,
    TIME,
    Description,
)
from bifocal.search.collection.sources import Entry, Source
from bifocal.search.collection.writer import CollectionWriter, Item

States = NDArray[np.int64]


class CollectionUpdate:
    """Collection and n entries of its update: their ``rows`` (n,) in it, -1 for new images, and
    ``unchanged`` (n,)."""

    def __init__(
        self, collection: Collection | None, entries: Sequence[Entry], states: States
    ) -> None:
        self.collection, self._entries, self._states = collection, entries, states
        self.rows: NDArray[np.int64] = np.full(len(entries), -1)
        self.unchanged: NDArray[np.bool_] = np.zeros(len(entries), bool)
        self._items = ITEMS_SCHEMA.empty_table().select(ITEM)
        if collection is not None:
            self._items = collection.items.select(ITEM).combine_chunks()
            self.rows, self.unchanged = _compare(
                self._items, collection.states(), collection.deleted, entries, states
            )
            self.unchanged |= np.array([entry.kept for entry in entries], bool)

    def item(self, position: int) -> Item:
        """Return the previous item of an entry, with the image and the state that the entry has
        now."""
        entry = self._entries[position]
        digest, width, height = (self._values[name][position] for name in ITEM[2:])
        return Item(entry.item_id, entry.image, digest, width, height, self.state(position))

    @cached_property
    def _values(self) -> dict[str, list[Any]]:
        """Previous columns of the entries as lists: a value of a column costs more to take."""
        rows = pa.array(self.rows, mask=self.rows < 0)
        columns: dict[str, list[Any]] = self._items.take(rows).to_pydict()
        return columns

    def state(self, position: int) -> tuple[int, ...]:
        """Return the state of the file of an entry."""
        return tuple(self._states[position].tolist())

    def sha256(self, position: int) -> str | None:
        """Return the SHA-256 of the previous image of an entry; None for a new image."""
        digest: str | None = self._values["sha256"][position]
        return digest

    def dates(self) -> dict[int, datetime | None]:
        """Return the previous dates of unchanged entries, by their positions."""
        if self.collection is None or META + DATE not in self.collection.items.column_names:
            return {}
        column = self.collection.items.column(META + DATE)
        unchanged = np.flatnonzero(self.unchanged) if column.type == TIME else np.zeros(0, np.int64)
        return dict(
            zip(unchanged.tolist(), column.take(self.rows[unchanged]).to_pylist(), strict=True)
        )

    def whole_shards(
        self, waiting: NDArray[np.bool_], least: int
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield unchanged, ``waiting`` shards of at least ``least`` vectors, so that updates make
        few small files."""
        if self.collection is None:
            return
        mine = np.flatnonzero(self.unchanged & waiting)
        shard, row = (
            self.collection.items.column(name).to_numpy()[self.rows[mine]]
            for name in ("shard", "row")
        )
        order = np.lexsort((row, shard))
        starts = np.searchsorted(
            shard[order], np.arange(len(self.collection.description.shards) + 1)
        )
        for number, size in enumerate(self.collection.description.shards):
            if starts[number + 1] - starts[number] == size >= max(least, 1):
                yield number, mine[order[starts[number] : starts[number + 1]]]

    def tombstones(self, gone: pa.Table, rejected: Sequence[str]) -> list[Item]:
        """Return the items that are gone from the source, or rejected, by their ids."""
        if self.collection is None:
            return []
        ids = self._items.column("item_id")
        lost = self._items.filter(pc.is_in(ids, value_set=pa.array(rejected, pa.string())))
        return [Item(**row) for row in pa.concat_tables([gone.select(ITEM), lost]).to_pylist()]

    def items(self, positions: NDArray[np.int64]) -> pa.Table:
        """Return the previous items of entries, with their present images, as a table of
        ``PART_SCHEMA``."""
        table = self._items.take(pa.array(self.rows[positions]))
        images = pa.array(
            [self._entries[position].image for position in positions.tolist()], pa.string()
        )
        table = table.set_column(1, "image", images)
        for field, column in zip(STATE_FIELDS, self._states[positions].T, strict=True):
            table = table.append_column(field, pa.array(column))
        return table.cast(PART_SCHEMA)


def with_former_types(table: pa.Table, former: pa.Table) -> tuple[pa.Table, list[tuple[str, str]]]:
    """Return metadata whose columns keep the types that they have in former items, and columns with
    misfits."""
    problems = []
    for place, name in enumerate(table.column_names):
        type_ = former.schema.field(name).type if name in former.column_names else pa.null()
        own = {type_, table.schema.field(name).type} & {
            pa.null(),
            TIME,
        }  # dates of files are not the user's
        if own or not name.startswith(META):
            continue
        column, misfits = with_type(table.column(name), type_)
        table = table.set_column(place, name, column)
        if misfits:
            reason = (
                f"{len(misfits):,} values, such as {misfits[0]!r}, are not of its type "
                f"{type_}: left out"
            )
            problems.append(
                (
                    f"metadata {name.removeprefix(META)}",
                    f"{reason}; a new collection takes new types",
                )
            )
    return table, problems


def open_writer(
    directory: Path,
    description: Description,
    items_per_shard: int,
    source: Source,
    entries: Sequence[Entry],
    states: States,
) -> CollectionWriter:
    """Return a writer that goes on after the shards of a killed run, unless one of their images has
    changed since."""
    writer = CollectionWriter(directory, description, items_per_shard)
    written = writer.written
    stored = np.stack([written.column(name).to_numpy() for name in FIELDS], axis=1)
    rows, unchanged = _compare(written, stored, np.zeros(len(written), bool), entries, states)
    unknown = np.flatnonzero((rows >= 0) & ~unchanged).tolist()
    hashes = written.column("sha256")
    if np.count_nonzero(rows >= 0) < len(written) or not all(
        _has_content(source, entries[position], hashes[int(rows[position])].as_py())
        for position in unknown
    ):
        writer.clear()
    return writer


def _compare(
    items: pa.Table,
    stored: States,
    deleted: NDArray[np.bool_],
    entries: Sequence[Entry],
    states: States,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rows (n,) of entries among items with their stored states, and which entries are
    unchanged (n,)."""
    ids = pa.array([entry.item_id for entry in entries], pa.string())
    found = pc.index_in(ids, value_set=items.column("item_id")).fill_null(-1).to_numpy()
    rows = np.where(np.append(deleted, True)[found], -1, found).astype(np.int64)
    given = pa.array([entry.sha256 for entry in entries], pa.string())
    previous = items.column("sha256").take(pa.array(rows, mask=rows < 0))
    same_hash = pc.equal(given, previous).fill_null(False).to_numpy()
    # Without a hash of the source, the state of the file decides; an entry without a row has row -1
    # of no item.
    padded = np.append(stored, np.zeros((1, stored.shape[1]), np.int64), axis=0)[rows]
    same_file = (
        given.is_null().to_numpy(zero_copy_only=False)
        & (padded == states).all(axis=1)
        & (states != 0).any(axis=1)
    )
    return rows, (rows >= 0) & (same_hash | same_file)


def _has_content(source: Source, entry: Entry, sha256: str) -> bool:
    """Return whether an image that has no equal hash and state of its file still has the content of
    a killed run."""
    if entry.kept:
        return True
    if entry.sha256 is not None or source.dataset is not None:
        return entry.sha256 is None
    return source.digest(entry) == sha256
