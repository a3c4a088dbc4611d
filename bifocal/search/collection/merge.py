"""Merge collections of several machines, each with a share of the images, into one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import (
    DESCRIPTION,
    ITEMS,
    REGIONS,
    REJECTED,
    VECTORS,
    Description,
    shard_name,
)
from bifocal.search.collection.sources import UNPACKED
from bifocal.search.collection.stat_cache import stored_states, write_states


def merge_collections(parts: Sequence[Path], target: Path, link: Callable[[Path, Path], None]) -> Description:
    """Write one collection of all parts, in order; ``link`` makes its second path a file with the first's contents."""
    opened = [Collection.open(part) for part in parts]
    first = opened[0].description
    tables, shards = [], list[int]()
    for collection in opened:
        theirs = collection.description
        for key in ("model", "root", "dimension", "region_dimension"):
            if getattr(theirs, key) != getattr(first, key):
                raise ValueError(
                    f"{collection.directory} and {opened[0].directory} differ in their {key}: {getattr(theirs, key)} "
                    f"and {getattr(first, key)}"
                )
        for folder in (VECTORS, REGIONS):
            for path in sorted((collection.directory / folder).glob("*.npy")):
                number, _, suffix = path.name.partition(".")
                link(path, target / folder / f"{shard_name(int(number) + len(shards))}.{suffix}")
        images = collection.directory / UNPACKED
        for path in images.rglob("*"):
            if path.is_file():
                link(path, target / UNPACKED / path.relative_to(images))
        tables.append(_shifted(collection, len(shards)))
        shards += theirs.shards
    table = pa.concat_tables(tables, promote_options="permissive")
    deleted = table.column("deleted").to_numpy()
    # Tombstones stay at the end, as in a collection of one machine.
    table = table.take(np.argsort(deleted, kind="stable"))
    pq.write_table(table, target / ITEMS)
    write_states(target, pa.concat_tables(map(stored_states, parts)))
    pq.write_table(pa.concat_tables(pq.read_table(part / REJECTED) for part in parts), target / REJECTED)
    merged = replace(
        first,
        shards=tuple(shards),
        items=int((~deleted).sum()),
        deleted=int(deleted.sum()),
        rejected=sum(collection.description.rejected for collection in opened),
    )
    merged.write(target / DESCRIPTION)
    return Collection.open(target).description


def _shifted(collection: Collection, shards: int) -> pa.Table:
    """Return the items of a collection whose shards follow ``shards`` others."""
    table = collection.items
    shard = table.column("shard").to_numpy()
    moved = np.where(shard < 0, shard, shard + shards).astype(np.int32)
    place = table.schema.get_field_index("shard")
    return table.set_column(place, table.schema.field(place), pa.array(moved))
