"""Writer of a collection, shard by shard; a killed run goes on at the first incomplete shard."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.search.collection_format import (
    DESCRIPTION,
    ITEMS,
    ITEMS_SCHEMA,
    META,
    NOWHERE,
    REGIONS,
    REJECTED,
    REJECTED_SCHEMA,
    VECTORS,
    Description,
    shard_name,
)

PARTS, STARTED = "parts", "started.json"
NORM_TOLERANCE = 1e-2
"""Largest difference of a vector's length from 1; float16 rounds to about 5e-4."""
PART_SCHEMA = pa.schema([field for field in ITEMS_SCHEMA if field.name not in ("shard", "row", "deleted", "captions")])


@dataclass(frozen=True)
class Item:
    """An image of a collection; the attributes are the columns of ``ITEMS_SCHEMA``."""

    item_id: str
    image: str | None
    sha256: str
    width: int
    height: int


class CollectionWriter:
    """Writer of a collection; the directory holds a collection once :meth:`finish` has written ``collection.json``.

    To resume after a kill, open a writer on the same directory and add the items that are not in ``written``, in the
    same order: the files are then identical to those of an uninterrupted run.

    Args:
        directory: of the collection; created if it does not exist.
        description: model, root, dimensions and preprocessing; the counts are set by ``finish``.
        items_per_shard: vectors in a file; a killed run loses at most one shard.

    Attributes:
        written: items of complete shards, in order.

    Raises:
        ValueError: the directory holds shards of another model.
    """

    def __init__(self, directory: Path, description: Description, items_per_shard: int = 4096) -> None:
        self.directory, self.description, self.items_per_shard = directory, description, items_per_shard
        for folder in (PARTS, VECTORS, *([REGIONS] if description.region_dimension is not None else [])):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        self._check_started()
        self.written: list[Item] = []
        self._shards: list[int] = []
        for path in sorted((directory / PARTS).glob("*.parquet")):
            rows = pq.read_table(path).to_pylist()
            self.written += [Item(**row) for row in rows]
            self._shards.append(len(rows))
        self._rejected: list[dict[str, str]] = []
        self._start_shard()

    def _check_started(self) -> None:
        file, content = self.directory / STARTED, json.loads(json.dumps(asdict(self.description)))
        if not file.is_file():
            file.write_text(json.dumps(content))
        elif json.loads(file.read_text()) != content:
            raise ValueError(f"{self.directory} holds shards of another model or root: delete it and start again")

    def clear(self) -> None:
        """Delete the complete shards of a killed run."""
        for folder in (PARTS, VECTORS, REGIONS):
            for path in (self.directory / folder).glob("*.*"):
                path.unlink()
        self.written, self._shards = [], []
        self._start_shard()

    def _start_shard(self) -> None:
        self._items: list[Item] = []
        self._vectors: list[NDArray[np.float16]] = []
        self._regions: list[NDArray[np.float16]] = []
        self._boxes: list[NDArray[np.float32]] = []

    def add(
        self,
        item: Item,
        vector: NDArray[Any],
        regions: NDArray[Any] | None = None,
        boxes: NDArray[Any] | None = None,
    ) -> None:
        """Add an item.

        Args:
            vector: (D,), of unit length.
            regions: (R, d), if the collection has regions.
            boxes: (R, 4) of the regions, x0 y0 x1 y1 in pixels of the image after EXIF rotation.

        Raises:
            ValueError: a shape is wrong, or the vector is not of unit length; the message names the item.
        """
        stored = np.asarray(vector, np.float32)
        if stored.shape != (self.description.dimension,) or not abs(np.linalg.norm(stored) - 1) < NORM_TOLERANCE:
            raise ValueError(
                f"vector of item {item.item_id!r}: shape {stored.shape}, length {np.linalg.norm(stored):.3f}; expected "
                f"({self.description.dimension},) and 1"
            )
        if (regions is None) != (self.description.region_dimension is None):
            raise ValueError(f"item {item.item_id!r}: give regions for all items or for none")
        if regions is not None:
            if boxes is None or regions.shape != (len(boxes), self.description.region_dimension):
                raise ValueError(
                    f"regions of item {item.item_id!r} are {regions.shape} with {0 if boxes is None else len(boxes)} "
                    "boxes: "
                    f"expected (R, {self.description.region_dimension}) and (R, 4)"
                )
            self._regions.append(np.asarray(regions, np.float16))
            self._boxes.append(np.asarray(boxes, np.float32).reshape(-1, 4))
        self._items.append(item)
        self._vectors.append(stored.astype(np.float16))
        if len(self._items) == self.items_per_shard:
            self._flush()

    def reject(self, image: str, reason: str) -> None:
        """List an image that is not in the collection."""
        self._rejected.append({"image": image, "reason": reason})

    def finish(
        self,
        captions: Mapping[str, Sequence[str]] | None = None,
        metadata: pa.Table | None = None,
        deleted: Iterable[Item] = (),
    ) -> Description:
        """Write the last shard, the tables and ``collection.json``; return its contents.

        Args:
            captions: sentences by item id.
            metadata: one row per item with its ``item_id`` and columns of any name and type, which the collection keeps
                as ``meta.NAME``; items without a row have nulls.
            deleted: items without a vector, the tombstones.

        Raises:
            ValueError: an item occurs twice.
        """
        if self._items:
            self._flush()
        tombstones = list(deleted)
        table = self._table(captions or {}, tombstones)
        if metadata is not None:
            table = _with_metadata(table, metadata)
        pq.write_table(table, self.directory / ITEMS)
        pq.write_table(pa.Table.from_pylist(self._rejected, REJECTED_SCHEMA), self.directory / REJECTED)
        description = replace(
            self.description,
            shards=tuple(self._shards),
            items=len(self.written),
            deleted=len(tombstones),
            rejected=len(self._rejected),
        )
        shutil.rmtree(self.directory / PARTS)
        (self.directory / STARTED).unlink()
        description.write(self.directory / DESCRIPTION)
        return description

    def _flush(self) -> None:
        name = shard_name(len(self._shards))
        _save(self.directory / VECTORS / f"{name}.npy", np.stack(self._vectors))
        if self.description.region_dimension is not None:
            offsets = np.cumsum([0, *(len(regions) for regions in self._regions)], dtype=np.int64)
            _save(self.directory / REGIONS / f"{name}.npy", np.concatenate(self._regions))
            _save(self.directory / REGIONS / f"{name}.offsets.npy", offsets)
            _save(self.directory / REGIONS / f"{name}.boxes.npy", np.concatenate(self._boxes))
        # The part comes last: a shard is complete if its part exists.
        part = self.directory / PARTS / f"{name}.parquet"
        pq.write_table(pa.Table.from_pylist([vars(item) for item in self._items], PART_SCHEMA), f"{part}.new")
        Path(f"{part}.new").replace(part)
        self.written += self._items
        self._shards.append(len(self._items))
        self._start_shard()

    def _table(self, captions: Mapping[str, Sequence[str]], deleted: Sequence[Item]) -> pa.Table:
        items = [*self.written, *deleted]
        if len({item.item_id for item in items}) != len(items):
            raise ValueError(f"an item occurs twice among {len(items)}: give each item its own id")
        gone = np.full(len(deleted), NOWHERE)
        shard = np.concatenate([*(np.full(count, number) for number, count in enumerate(self._shards)), gone])
        row = np.concatenate([*(np.arange(count) for count in self._shards), gone])
        columns = {
            **{name: [getattr(item, name) for item in items] for name in PART_SCHEMA.names},
            "shard": shard,
            "row": row,
            "deleted": shard == NOWHERE,
            "captions": [list(captions.get(item.item_id, ())) for item in self.written] + [[] for _ in deleted],
        }
        arrays = [pa.array(columns[field.name], field.type) for field in ITEMS_SCHEMA]
        return pa.Table.from_arrays(arrays, schema=ITEMS_SCHEMA)


def _with_metadata(table: pa.Table, metadata: pa.Table) -> pa.Table:
    """Append the columns of ``metadata`` as ``meta.*``, in the order of the items; a tombstone has nulls."""
    row_of = {item_id: row for row, item_id in enumerate(metadata.column("item_id").to_pylist())}
    pairs = zip(table.column("item_id").to_pylist(), table.column("deleted").to_pylist(), strict=True)
    rows = pa.array([None if gone else row_of.get(item_id) for item_id, gone in pairs], pa.int64())
    for name in metadata.column_names:
        if name != "item_id":
            table = table.append_column(f"{META}{name}", metadata.column(name).take(rows))
    return table


def _save(path: Path, array: NDArray[Any]) -> None:
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        np.save(file, array)
    temporary.replace(path)
