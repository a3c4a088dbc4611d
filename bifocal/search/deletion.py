"""Delete items of a collection and its index, so that no byte of their vectors stays: in one change
of their files."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.datasets.base import META
from bifocal.durable import Change, path_inside
from bifocal.onnx.files import parse_json
from bifocal.search.collection.format import (
    DESCRIPTION,
    FEATURES,
    ITEMS,
    NOWHERE,
    REGIONS,
    STATES,
    UNPACKED,
    VECTORS,
    Description,
    read_items,
    shard_name,
    stored_states,
    without,
)
from bifocal.search.index.files import KEYWORDS
from bifocal.search.index.index import SearchIndex
from bifocal.search.vectors import save_array


def delete_from_collection(change: Change, directory: Path, item_ids: Sequence[str]) -> Description:
    """Make items tombstones: zero vectors, null captions and metadata; delete images unpacked into
    the collection.

    Args:
        change: see ``bifocal.durable.change``; nothing changes before its end.
    """
    description, items = Description.read(directory / DESCRIPTION), read_items(directory / ITEMS)
    gone = _mask(items["item_id"].to_pylist(), item_ids, directory)
    if description.root == UNPACKED:
        for name in items.filter(pa.array(gone))["image"].to_pylist():
            path_inside(directory, Path(UNPACKED, name))
            change.delete(directory / UNPACKED / name)
    shard, row = (items.column(name).to_numpy() for name in ("shard", "row"))
    for number in np.unique(shard[gone & (shard != NOWHERE)]).tolist():
        _zero_shard(change, directory, number, row[gone & (shard == number)], description.folders)
    table = _tombstones(items, gone)
    change.write(directory / ITEMS, partial(pq.write_table, table))
    if (directory / STATES).is_file():
        kept = without(stored_states(directory), item_ids)
        change.write(directory / STATES, partial(pq.write_table, kept))
    deleted = int(table["deleted"].to_numpy().sum())
    description = replace(description, items=len(table) - deleted, deleted=deleted)
    change.write(directory / DESCRIPTION, description.write)
    return description


def delete_from_index(change: Change, directory: Path, item_ids: Sequence[str]) -> float:
    """Remove items from an index and return their share; an index of faiss without inverted lists
    is built again."""
    index = SearchIndex.open(directory)
    gone = _mask(index.items["item_id"].to_pylist(), item_ids, directory)
    index.removed = index.removed | gone
    files = index.files()
    for name, write in files.items():
        change.write(directory / name, write)
    if KEYWORDS not in files:
        change.delete(directory / KEYWORDS)
    return float(index.removed.mean())


def _mask(known: Sequence[str], item_ids: Sequence[str], directory: Path) -> NDArray[np.bool_]:
    """Return which items (N,) are to be deleted; an index may have removed items with the same
    id."""
    unknown = sorted(set(item_ids) - set(known))
    if unknown:
        raise ValueError(
            f"{directory} has no item {unknown[0]!r} among its {len(known)}: nothing was deleted"
        )
    wanted = set(item_ids)
    return np.array([item_id in wanted for item_id in known], dtype=bool)


def _zero_shard(
    change: Change, directory: Path, number: int, rows: NDArray[np.int32], folders: Sequence[str]
) -> None:
    name = shard_name(number)
    for folder in {VECTORS, FEATURES}.intersection(folders):
        slices = [slice(row, row + 1) for row in rows]
        _zero_rows(change, directory / folder / f"{name}.npy", slices)
    if REGIONS in folders:
        offsets = np.load(directory / REGIONS / f"{name}.offsets.npy")
        slices = [slice(offsets[row], offsets[row + 1]) for row in rows]
        for suffix in ("", ".boxes"):
            _zero_rows(change, directory / REGIONS / f"{name}{suffix}.npy", slices)


def _zero_rows(change: Change, file: Path, slices: Sequence[slice]) -> None:
    array = np.load(file)
    for rows in slices:
        array[rows] = 0
    change.write(file, partial(save_array, array=array))


def _tombstones(items: pa.Table, gone: NDArray[np.bool_]) -> pa.Table:
    """Return the items of a collection, with tombstones where the mask (N,) is true."""
    changed = {
        "shard": pa.array(np.where(gone, NOWHERE, items["shard"].to_numpy()), pa.int32()),
        "row": pa.array(np.where(gone, NOWHERE, items["row"].to_numpy()), pa.int32()),
        "deleted": pa.array(gone | items["deleted"].to_numpy()),
        "captions": pa.array(
            [
                [] if dead else texts
                for dead, texts in zip(gone, items["captions"].to_pylist(), strict=True)
            ],
            pa.list_(pa.string()),
        ),
    }
    kept = pa.array(np.arange(len(items)), mask=gone)
    columns = [
        items[field.name].take(kept)
        if field.name.startswith(META)
        else changed.get(field.name, items[field.name])
        for field in items.schema
    ]
    return pa.table(columns, schema=items.schema)


def read_ids(text: str) -> tuple[list[str], list[str]]:
    """Return the ids in lines of JSON strings, and the lines that a killed process or a full disk
    has cut.

    >>> read_ids('"a"\\n\\n"b c"\\n"to')
    (['a', 'b c'], ['"to'])
    """
    ids, incomplete = list[str](), list[str]()
    for line in text.split("\n"):
        try:
            value = parse_json(line) if line.strip() else None
        except ValueError:
            value = None
        if isinstance(value, str):
            ids.append(value)
        elif line.strip():
            incomplete.append(line)
    return ids, incomplete
