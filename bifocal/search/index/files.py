"""Write and read the files of an index."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.onnx.damage import read_whole
from bifocal.search.arrays import save_array
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import read_table
from bifocal.search.index.approximate import ApproximateIndex
from bifocal.search.index.format import APPROXIMATE, BIAS, ITEMS, KEYWORDS, REMOVED, VECTORS, IndexDescription
from bifocal.search.keywords import Keywords, has_texts
from bifocal.search.vectors import FileVectors

Array = NDArray[Any]
BATCH = 65_536


class IndexParts(NamedTuple):
    """Arguments of a ``SearchIndex``, in their order."""

    items: pa.Table
    vectors: Any
    bias: Array | None
    description: IndexDescription
    approximate: ApproximateIndex | None
    removed: Array
    calibration: Calibration | None
    keywords: Keywords | None = None


def write_index(index: IndexParts, directory: Path) -> None:
    """Write the files of an index to an existing directory, ``index.json`` last; only the ids of removed items stay."""
    items = without_values(index.items, index.removed)
    pq.write_table(items, directory / ITEMS)
    if has_texts(items):
        Keywords.of(items).write(directory / KEYWORDS)
    write_vectors(index.vectors, index.removed, directory / VECTORS)
    if index.bias is not None:
        save_array(directory / BIAS, index.bias)
    if index.approximate is not None:
        index.approximate.write(directory / APPROXIMATE)
    save_array(directory / REMOVED, index.removed)
    if index.calibration is not None:
        index.calibration.write(directory)
    index.description.write(directory)


def without_values(items: pa.Table, removed: Array) -> pa.Table:
    """Return the items with nulls in place of all values of the removed items (N,), but their ids."""
    kept = pa.array(np.arange(len(items)), mask=removed)
    columns = [items[name] if name == "item_id" else items[name].take(kept) for name in items.column_names]
    # A collection has columns without nulls, such as the hash of an image.
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in items.schema]))


def write_vectors(vectors: Any, removed: Array, file: Path) -> None:
    """Write vectors (N, d) as float16, with zeros for the removed items (N,)."""
    with file.open("wb") as opened:
        for start in range(0, len(vectors), BATCH):
            block = np.array(vectors[start : start + BATCH], dtype=np.float16)
            block[removed[start : start + BATCH]] = 0
            opened.write(block.tobytes())


def read_index(directory: Path, model: str | None, collection: Collection | None = None) -> IndexParts:
    """Read an index; its vectors, keywords and index of faiss are memory-mapped. See ``SearchIndex.open``."""
    description = IndexDescription.read(directory)
    if model is not None:
        description.check_model(model)
    count, shape = description.count, (description.count, description.dimension)
    parts = IndexParts(
        _read_items(directory / ITEMS, collection),
        read_whole(directory / VECTORS, lambda file: FileVectors(file, shape)),
        read_whole(directory / BIAS, np.load) if (directory / BIAS).is_file() else None,
        description,
        None if description.factory is None else read_whole(directory / APPROXIMATE, ApproximateIndex.open),
        read_whole(directory / REMOVED, np.load),
        Calibration.read(directory),
        read_whole(directory / KEYWORDS, partial(Keywords.open, count=count))
        if (directory / KEYWORDS).is_file()
        else None,
    )
    for file, part in ((ITEMS, parts.items), (BIAS, parts.bias), (REMOVED, parts.removed)):
        if part is not None and len(part) != count:
            raise ValueError(f"{directory / file} has {len(part)} rows, expected {count}: copy it again")
    return parts


def _read_items(file: Path, collection: Collection | None) -> pa.Table:
    """Return the items of an index: the collection's, which are in memory, if it has the same ids in the same rows."""
    if collection is not None and read_table(file, ["item_id"])["item_id"].equals(collection.items["item_id"]):
        return collection.facts
    return read_table(file)
