"""A collection: ids, metadata and vectors of many images by one exported model. Needs no torch."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.datasets.remote_files import is_address
from bifocal.durable import link, path_inside
from bifocal.onnx.files import read_array
from bifocal.search.collection.format import (
    DESCRIPTION,
    FEATURES,
    FIELDS,
    ITEMS,
    REGIONS,
    REJECTED,
    STATES,
    UNPACKED,
    VECTORS,
    Description,
    ModelIdentity,
    read_items,
    shard_name,
    stored_states,
    values_of,
)
from bifocal.search.item_ids import ItemIds
from bifocal.search.vectors import Vectors


class CollectionRegions(NamedTuple):
    """Vectors (R, d) in the joint space of the regions of one image, and their boxes x0 y0 x1 y1 in
    its pixels."""

    vectors: NDArray[np.float16]
    boxes: NDArray[np.float32]


class Collection:
    """A written collection, or its items with some ``ids``; its vectors stay on disk; vector k of
    row k is zero for a deleted item."""

    def __init__(self, directory: Path, ids: pa.Array | None = None) -> None:
        self.directory, self._chosen = directory, ids
        self.description = Description.read(directory / DESCRIPTION)
        self.items: pa.Table = read_items(directory / ITEMS, ids)
        shard, row = (values_of(self.items, name) for name in ("shard", "row"))
        self._shard, self._row = shard, row
        self._check_rows()
        files = [
            self._open(VECTORS, number, (count, self.dimension)) for number, count in self._counts
        ]
        self.vectors = Vectors(files, shard, row, self.dimension)

    @classmethod
    def open(cls, directory: Path) -> "Collection":
        """Return the collection in ``directory``."""
        return cls(directory)

    @property
    def model(self) -> ModelIdentity:
        """The model that computed the vectors."""
        return self.description.model

    @property
    def dimension(self) -> int:
        """D of a vector."""
        return self.description.dimension

    def __len__(self) -> int:
        """Return N, the number of items with the deleted ones."""
        return len(self.items)

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the N items."""
        ids: list[str] = self.items.column("item_id").to_pylist()
        return ids

    @cached_property
    def lookup(self) -> ItemIds:
        """Rows of the ids."""
        return ItemIds(self.items.column("item_id"))

    @property
    def facts(self) -> pa.Table:
        """The items without the columns that say where their vectors are: the items of an index."""
        return self.items.drop_columns(["shard", "row", "deleted"])

    @cached_property
    def deleted(self) -> NDArray[np.bool_]:
        """(N,), True for tombstones."""
        deleted: NDArray[np.bool_] = values_of(self.items, "deleted")
        return deleted

    def states(self) -> NDArray[np.int64]:
        """Return the states (N, 4) of the image files; ``UNKNOWN`` if they are not stored."""
        table = stored_states(self.directory, self._chosen)
        rows = pc.index_in(self.items.column("item_id"), value_set=table.column("item_id"))
        columns: list[Any] = [
            table.column(name).take(rows).fill_null(0).to_numpy() for name in FIELDS
        ]
        return np.stack(columns, axis=1)

    def image(self, row: int) -> Path | str | None:
        """Return the file or the address of an item's image; None if its corpus publishes only
        features."""
        name, root = self.items.column("image")[row].as_py(), self.description.root
        if name is None:
            return None
        return (
            f"{root.rstrip('/')}/{name}"
            if is_address(root)
            else path_inside(
                self.directory / root,
                name,
                caches=True,
                follow_links=self.description.follow_links,
            )
        )

    def captions(self, row: int) -> list[str]:
        """Return the sentences of an item; they may be none."""
        captions: list[str] = self.items.column("captions")[row].as_py()
        return captions

    def regions(self, row: int) -> CollectionRegions | None:
        """Return the regions of an item; None if the collection has no regions, or the item is
        deleted."""
        shard = int(self._shard[row])
        if self.description.region_dimension is None or shard < 0:
            return None
        offsets, vectors, boxes = self._region_files[shard]
        start, end = offsets[self._row[row]], offsets[self._row[row] + 1]
        return CollectionRegions(vectors[start:end], boxes[start:end])

    def features(self, rows: Sequence[int]) -> NDArray[np.float16]:
        """Return the stored features (n, R, D) of n items; ``ValueError`` if the collection has
        none."""
        backbone = self.description.backbone
        if backbone is None:
            raise ValueError(f"{self.directory} keeps no features: embed it again with features")
        return self._features[list(rows)].reshape(-1, backbone.regions, backbone.dim)

    @cached_property
    def _features(self) -> Vectors:
        size = 0 if self.description.backbone is None else self.description.backbone.size
        files = [self._open(FEATURES, number, (count, size)) for number, count in self._counts]
        return Vectors(files, self._shard, self._row, size)

    @property
    def _counts(self) -> Sequence[tuple[int, int]]:
        return list(enumerate(self.description.shards))

    @cached_property
    def _region_files(self) -> list[tuple[NDArray[Any], NDArray[np.float16], NDArray[np.float32]]]:
        found = []
        for number, count in self._counts:
            offsets = self._open(REGIONS, number, (count + 1,), ".offsets")
            rows = int(offsets[-1])
            vectors = self._open(REGIONS, number, (rows, self.description.region_dimension or 0))
            found.append((offsets, vectors, self._open(REGIONS, number, (rows, 4), ".boxes")))
        return found

    def _open(
        self, folder: str, number: int, shape: tuple[int, ...], suffix: str = ""
    ) -> NDArray[Any]:
        path = self.directory / folder / f"{shard_name(number)}{suffix}.npy"
        array = read_array(path, "r" if np.prod(shape) else None)  # NumPy cannot map an empty file
        if array.shape != shape:
            raise ValueError(
                f"{path} has shape {array.shape}, expected {shape}: embed the collection again"
            )
        return array

    def _check_rows(self) -> None:
        """Raise ``ValueError`` unless each item that is not deleted has a vector of its own."""
        if self.lookup.repeated():
            raise ValueError(
                f"{self.directory / ITEMS} has an item_id twice: embed the collection again"
            )
        live = ~self.deleted
        shard, row = self._shard[live], self._row[live]
        counts = np.array(self.description.shards, np.int64)
        valid = (shard >= 0) & (shard < len(counts)) & (row >= 0)
        valid[valid] &= row[valid] < counts[shard[valid]]
        places = np.cumsum([0, *counts])[np.where(valid, shard, 0)] + row
        places -= places.min(initial=counts.sum())
        if not valid.all() or np.bincount(places).max(initial=0) > 1:
            raise ValueError(
                f"{self.directory / ITEMS} refers to vectors that the shards do not have, or "
                "to one vector twice: embed the collection again"
            )
        stated = self.description.items, self.description.deleted
        if self._chosen is None and (live.sum(), (~live).sum()) != stated:
            raise ValueError(
                f"{self.directory / ITEMS} has {live.sum()} items and {(~live).sum()} "
                f"tombstones, but {DESCRIPTION} states {self.description.items} and "
                f"{self.description.deleted}: embed the collection again"
            )


def merge_collections(parts: Sequence[Path], target: Path) -> Description:
    """Write one collection of all parts, in order: their tables one after the other, and links to
    their other files."""
    described = [Description.read(part / DESCRIPTION) for part in parts]
    first, shards, gone = described[0], list[int](), list[pa.Table]()
    schemas = [pq.read_schema(part / ITEMS) for part in parts]
    empty = pa.unify_schemas(schemas, promote_options="permissive").empty_table()
    with pq.ParquetWriter(target / ITEMS, empty.schema) as items:
        for part, theirs in zip(parts, described, strict=True):
            for key in ("model", "root", "dimension", "region_dimension", "backbone"):
                if getattr(theirs, key) != getattr(first, key):
                    raise ValueError(
                        f"{part} and {parts[0]} differ in their {key}: {getattr(theirs, key)} and "
                        f"{getattr(first, key)}"
                    )
            for folder in first.folders:
                for path in sorted((part / folder).glob("*.npy")):
                    number, _, suffix = path.name.partition(".")
                    name = f"{shard_name(int(number) + len(shards))}.{suffix}"
                    link(path, target / folder / name)
            for path in (part / UNPACKED).rglob("*"):
                if path.is_file():
                    link(path, target / path.relative_to(part))
            moved = _shifted(Collection.open(part), len(shards))
            table = pa.concat_tables([empty, moved], promote_options="permissive")
            items.write_table(table.filter(pc.invert(table.column("deleted"))))
            gone.append(table.filter(table.column("deleted")))
            shards += theirs.shards
        # Tombstones stay at the end, as in a collection of one machine.
        items.write_table(pa.concat_tables(gone))
    for name in (STATES, REJECTED):
        files = [part / name for part in parts if (part / name).is_file()]
        if files:
            with pq.ParquetWriter(target / name, pq.read_schema(files[0])) as joined:
                for file in files:
                    joined.write_table(pq.read_table(file))
    counts = {
        key: sum(getattr(theirs, key) for theirs in described)
        for key in ("items", "deleted", "rejected")
    }
    merged = replace(first, shards=tuple(shards), **counts)
    merged.write(target / DESCRIPTION)
    return merged


def _shifted(collection: Collection, shards: int) -> pa.Table:
    """Return the items of a collection whose shards follow ``shards`` others."""
    table = collection.items
    shard = table.column("shard").to_numpy()
    moved = np.where(shard < 0, shard, shard + shards).astype(np.int32)
    place = table.schema.get_field_index("shard")
    return table.set_column(place, table.schema.field(place), pa.array(moved))
