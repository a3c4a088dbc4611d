"""Delete items, so that no byte of their vectors stays; files are replaced by renaming: repeat a killed deletion."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.search.arrays import save_array
from bifocal.search.collection.format import (
    DESCRIPTION,
    ITEMS,
    META,
    NOWHERE,
    REGIONS,
    VECTORS,
    Description,
    path_inside,
    read_items,
    shard_name,
)
from bifocal.search.collection.sources import UNPACKED
from bifocal.search.collection.stat_cache import STATES, stored_states
from bifocal.search.index.approximate import ApproximateIndex
from bifocal.search.index.files import read_index, without_values, write_vectors
from bifocal.search.index.format import APPROXIMATE, BIAS, REMOVED
from bifocal.search.index.format import ITEMS as INDEX_ITEMS
from bifocal.search.index.format import VECTORS as INDEX_VECTORS


def delete_from_collection(directory: Path, item_ids: Sequence[str]) -> Description:
    """Make items tombstones: zero vectors, null captions and metadata; delete images unpacked into the collection."""
    description, items = Description.read(directory / DESCRIPTION), read_items(directory / ITEMS)
    gone = _mask(items["item_id"].to_pylist(), item_ids, directory)
    images: list[Path] = []
    if description.root == UNPACKED:
        # Refuse a path out of the folder before anything is changed.
        images = [path_inside(directory / UNPACKED, name) for name in items.filter(pa.array(gone))["image"].to_pylist()]
    shard, row = (items.column(name).to_numpy() for name in ("shard", "row"))
    for number in np.unique(shard[gone & (shard != NOWHERE)]).tolist():
        _zero_shard(directory, number, row[gone & (shard == number)], description.region_dimension is not None)
    for image in images:
        image.unlink(missing_ok=True)
    # The vectors come first: a killed deletion finds their rows again.
    table = _tombstones(items, gone)
    _write_aside(directory / ITEMS, lambda file: pq.write_table(table, file))
    if (directory / STATES).is_file():
        states = stored_states(directory)
        kept = states.filter(pc.invert(pc.is_in(states["item_id"], value_set=pa.array(item_ids, pa.string()))))
        _write_aside(directory / STATES, lambda file: pq.write_table(kept, file))
    deleted = int(table["deleted"].to_numpy().sum())
    description = replace(description, items=len(table) - deleted, deleted=deleted)
    description.write(directory / DESCRIPTION)
    return description


def delete_from_index(directory: Path, item_ids: Sequence[str]) -> float:
    """Remove items from an index and return their share; an index of faiss without inverted lists is built again."""
    index = read_index(directory, None)
    gone = _mask(index.items["item_id"].to_pylist(), item_ids, directory)
    removed = index.removed | gone
    _write_aside(directory / REMOVED, lambda file: save_array(file, removed))
    _write_aside(directory / INDEX_VECTORS, lambda file: write_vectors(index.vectors, removed, file))
    if index.approximate is not None:
        # Build before the rename: the vectors come from the former file, which is still mapped.
        changed = index.approximate.without(np.flatnonzero(removed))
        if changed is None:
            vectors = np.where(removed[:, None], np.float16(0), index.vectors)
            changed = ApproximateIndex.build(vectors, str(index.description.factory))
        _write_aside(directory / APPROXIMATE, changed.write)
    if index.bias is not None:
        bias = np.where(removed, np.float32(0), index.bias)
        _write_aside(directory / BIAS, lambda file: save_array(file, bias))
    table = without_values(index.items, removed)
    _write_aside(directory / INDEX_ITEMS, lambda file: pq.write_table(table, file))
    return float(removed.mean())


def _mask(known: Sequence[str], item_ids: Sequence[str], directory: Path) -> NDArray[np.bool_]:
    """Return which items (N,) are to be deleted; an index may have removed items with the same id."""
    unknown = sorted(set(item_ids) - set(known))
    if unknown:
        raise ValueError(f"{directory} has no item {unknown[0]!r} among its {len(known)}: nothing was deleted")
    wanted = set(item_ids)
    return np.array([item_id in wanted for item_id in known], dtype=bool)


def _zero_shard(directory: Path, number: int, rows: NDArray[np.int32], regions: bool) -> None:
    name = shard_name(number)
    _zero_rows(directory / VECTORS / f"{name}.npy", [slice(row, row + 1) for row in rows])
    if regions:
        offsets = np.load(directory / REGIONS / f"{name}.offsets.npy")
        slices = [slice(offsets[row], offsets[row + 1]) for row in rows]
        for suffix in ("", ".boxes"):
            _zero_rows(directory / REGIONS / f"{name}{suffix}.npy", slices)


def _zero_rows(file: Path, slices: Sequence[slice]) -> None:
    array = np.load(file)
    for rows in slices:
        array[rows] = 0
    _write_aside(file, lambda temporary: save_array(temporary, array))


def _tombstones(items: pa.Table, gone: NDArray[np.bool_]) -> pa.Table:
    """Return the items of a collection, with tombstones where the mask (N,) is true."""
    changed = {
        "shard": pa.array(np.where(gone, NOWHERE, items["shard"].to_numpy()), pa.int32()),
        "row": pa.array(np.where(gone, NOWHERE, items["row"].to_numpy()), pa.int32()),
        "deleted": pa.array(gone | items["deleted"].to_numpy()),
        "captions": pa.array(
            [[] if dead else texts for dead, texts in zip(gone, items["captions"].to_pylist(), strict=True)],
            pa.list_(pa.string()),
        ),
    }
    kept = pa.array(np.arange(len(items)), mask=gone)
    columns = [
        items[field.name].take(kept) if field.name.startswith(META) else changed.get(field.name, items[field.name])
        for field in items.schema
    ]
    return pa.table(columns, schema=items.schema)


def _write_aside(file: Path, write: Callable[[Path], object]) -> None:
    temporary = file.with_name(file.name + ".new")
    write(temporary)
    temporary.replace(file)
