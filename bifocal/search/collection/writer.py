"""Writer of a collection, shard by shard; a killed run goes on at the first incomplete shard."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.durable import link, plain, replace_file, write_json
from bifocal.onnx.files import read_json
from bifocal.search.collection.format import (
    DESCRIPTION,
    FEATURES,
    ITEMS,
    ITEMS_SCHEMA,
    NOWHERE,
    PART_SCHEMA,
    REGIONS,
    REJECTED,
    REJECTED_SCHEMA,
    STATE_FIELDS,
    UNKNOWN,
    VECTORS,
    Description,
    shard_name,
    write_states,
)
from bifocal.search.vectors import save_array

PARTS, STARTED = "parts", "started.json"
NORM_TOLERANCE = 1e-2
"""Largest difference of a vector's length from 1; float16 rounds to about 5e-4."""


@dataclass(frozen=True)
class Item:
    """Image of a collection: columns of ``ITEMS_SCHEMA``, and its file's state."""

    item_id: str
    image: str | None
    sha256: str
    width: int
    height: int
    state: tuple[int, ...] = UNKNOWN


class CollectionWriter:
    """Writer of a collection, complete after :meth:`finish`; to resume, add the items that are not
    in ``written`` in the same order, and the files are identical to an uninterrupted run.
    """

    def __init__(
        self, directory: Path, description: Description, items_per_shard: int = 4096
    ) -> None:
        self.directory, self.description, self.items_per_shard = (
            directory,
            description,
            items_per_shard,
        )
        for folder in (PARTS, *description.folders):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        self._check_started()
        self._parts = [
            pq.read_table(path) for path in sorted((directory / PARTS).glob("*.parquet"))
        ]
        self._rejected: list[dict[str, str]] = []
        self._start_shard()

    def _check_started(self) -> None:
        file, content = self.directory / STARTED, plain(self.description)
        if not file.is_file():
            write_json(file, content)
        elif read_json(file) != content:
            raise ValueError(
                f"{self.directory} holds shards of another model or root: delete it and start again"
            )

    def clear(self) -> None:
        """Delete the complete shards of a killed run."""
        for folder in (PARTS, *self.description.folders):
            for path in (self.directory / folder).glob("*.*"):
                path.unlink()
        self._parts = []
        self._start_shard()

    @property
    def written(self) -> pa.Table:
        return pa.concat_tables([PART_SCHEMA.empty_table(), *self._parts])

    def _start_shard(self) -> None:
        self._items: list[Item] = []
        self._vectors: list[NDArray[np.float16]] = []
        self._regions: list[NDArray[np.float16]] = []
        self._boxes: list[NDArray[np.float32]] = []
        self._features: list[NDArray[np.float16]] = []

    def add(
        self,
        item: Item,
        vector: NDArray[Any],
        regions: NDArray[Any] | None = None,
        boxes: NDArray[Any] | None = None,
        features: NDArray[Any] | None = None,
    ) -> None:
        """Add an item with its vector (D,) of unit length, its regions (R, d), their boxes (R, 4)
        in pixels, and its features as ``Description.backbone`` has them."""
        stored = np.asarray(vector, np.float32)
        if (
            stored.shape != (self.description.dimension,)
            or not abs(np.linalg.norm(stored) - 1) < NORM_TOLERANCE
        ):
            raise ValueError(
                f"vector of item {item.item_id!r}: shape {stored.shape}, length "
                f"{np.linalg.norm(stored):.3f}; expected ({self.description.dimension},) and 1"
            )
        if (regions is None) != (self.description.region_dimension is None):
            raise ValueError(f"item {item.item_id!r}: give regions for all items or for none")
        if regions is not None:
            if boxes is None or regions.shape != (len(boxes), self.description.region_dimension):
                raise ValueError(
                    f"regions of item {item.item_id!r} are {regions.shape} with "
                    f"{0 if boxes is None else len(boxes)} boxes: expected (R, "
                    f"{self.description.region_dimension}) and (R, 4)"
                )
            self._regions.append(np.asarray(regions, np.float16))
            self._boxes.append(np.asarray(boxes, np.float32).reshape(-1, 4))
        backbone = self.description.backbone
        given = None if features is None else features.shape
        if given != (None if backbone is None else (backbone.regions, backbone.dim)):
            raise ValueError(f"features of item {item.item_id!r} are {given}: expected {backbone}")
        if features is not None:
            self._features.append(features.astype(np.float16).ravel())
        self._items.append(item)
        self._vectors.append(stored.astype(np.float16))
        if len(self._items) == self.items_per_shard:
            self._flush()

    def take_over(self, previous: Path, number: int, items: pa.Table) -> None:
        """Link or copy a shard of another collection by the same model, without reading its
        vectors."""
        name = shard_name(len(self._parts))
        for folder in self.description.folders:
            for file in (previous / folder).glob(f"{shard_name(number)}.*"):
                link(
                    file,
                    self.directory / folder / f"{name}{file.name.removeprefix(shard_name(number))}",
                )
        self._write_part(items)

    def reject(self, image: str, reason: str) -> None:
        """List an image that is not in the collection."""
        self._rejected.append({"image": image, "reason": reason})

    def finish(
        self,
        captions: Mapping[str, Sequence[str]] | None = None,
        metadata: pa.Table | None = None,
        deleted: Iterable[Item] = (),
        order: Sequence[str] | None = None,
    ) -> Description:
        """Write the last shard, the tables and ``collection.json``; return its contents; see
        ``_items_table``."""
        if self._items:
            self._flush()
        write_states(self.directory, self.written)
        tombstones = _part(list(deleted))
        table = _items_table(self._parts, captions or {}, tombstones, order)
        if metadata is not None:
            table = with_metadata(table, metadata, table.column("deleted"))
        pq.write_table(table, self.directory / ITEMS)
        pq.write_table(
            pa.Table.from_pylist(self._rejected, REJECTED_SCHEMA), self.directory / REJECTED
        )
        description = replace(
            self.description,
            shards=tuple(map(len, self._parts)),
            items=sum(map(len, self._parts)),
            deleted=len(tombstones),
            rejected=len(self._rejected),
        )
        shutil.rmtree(self.directory / PARTS)
        (self.directory / STARTED).unlink()
        description.write(self.directory / DESCRIPTION)
        return description

    def _flush(self) -> None:
        name = shard_name(len(self._parts))
        _save(self.directory / VECTORS / f"{name}.npy", np.stack(self._vectors))
        if self.description.region_dimension is not None:
            offsets = np.cumsum([0, *(len(regions) for regions in self._regions)], dtype=np.int64)
            _save(self.directory / REGIONS / f"{name}.npy", np.concatenate(self._regions))
            _save(self.directory / REGIONS / f"{name}.offsets.npy", offsets)
            _save(self.directory / REGIONS / f"{name}.boxes.npy", np.concatenate(self._boxes))
        if self.description.backbone is not None:
            _save(self.directory / FEATURES / f"{name}.npy", np.stack(self._features))
        self._write_part(_part(self._items))
        self._start_shard()

    def _write_part(self, items: pa.Table) -> None:
        """Write the items of a shard after its vectors: a shard is complete if its part exists."""
        part = self.directory / PARTS / f"{shard_name(len(self._parts))}.parquet"
        replace_file(part, partial(pq.write_table, items))
        self._parts.append(items)


def _part(items: Sequence[Item]) -> pa.Table:
    """Return items as a table of ``PART_SCHEMA``."""
    states = np.array([item.state for item in items], np.int64).reshape(
        len(items), len(STATE_FIELDS)
    )
    values = [
        [getattr(item, field.name) for item in items]
        for field in PART_SCHEMA
        if field not in STATE_FIELDS
    ]
    return pa.table([*values, *states.T], schema=PART_SCHEMA)


def _save(file: Path, array: NDArray[Any]) -> None:
    replace_file(file, partial(save_array, array=array))


def _items_table(
    shards: Sequence[pa.Table],
    captions: Mapping[str, Sequence[str]],
    tombstones: pa.Table,
    order: Sequence[str] | None,
) -> pa.Table:
    """Return the items with the columns of ``ITEMS_SCHEMA``, in ``order`` or as their vectors;
    tombstones are last."""
    counts = [len(items) for items in shards]
    written = pa.concat_tables([PART_SCHEMA.empty_table(), *shards])
    shard = np.repeat(np.arange(len(counts)), counts)
    row = np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)])
    if order is not None:
        found = pc.index_in(
            pa.array(order, pa.string()), value_set=written.column("item_id")
        ).drop_null()
        written, shard, row = written.take(found), shard[found.to_numpy()], row[found.to_numpy()]
    items = pa.concat_tables([written, tombstones])
    if pc.count_distinct(items.column("item_id")).as_py() != len(items):
        raise ValueError(f"an item occurs twice among {len(items)}: give each item its own id")
    gone = np.full(len(tombstones), NOWHERE)
    texts = (
        [list(captions.get(item_id, ())) for item_id in written.column("item_id").to_pylist()]
        if captions
        else []
    )
    columns: dict[str, Any] = {
        "shard": np.concatenate([shard, gone]),
        "row": np.concatenate([row, gone]),
        "deleted": np.arange(len(items)) >= len(written),
        "captions": texts + [[]] * (len(items) - len(texts)),
    }
    values = [
        columns[name] if name in columns else items.column(name) for name in ITEMS_SCHEMA.names
    ]
    return pa.table(values, schema=ITEMS_SCHEMA)


def with_metadata(table: pa.Table, metadata: pa.Table, deleted: Any = False) -> pa.Table:
    """Append the columns ``meta.*`` of ``metadata``, in the order of the items; a tombstone has
    nulls."""
    rows = pc.index_in(
        table.column("item_id"), value_set=metadata.column("item_id").cast(pa.string())
    )
    rows = pc.if_else(deleted, pa.scalar(None, rows.type), rows)
    for name in metadata.column_names:
        if name != "item_id":
            table = table.append_column(name, metadata.column(name).take(rows))
    return table
