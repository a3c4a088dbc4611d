"""Files of a collection: names, the description, the table of items, and the states of image
files."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.datasets.base import META
from bifocal.durable import write_json
from bifocal.onnx.files import read_versioned, read_whole, typed

SCHEMA_VERSION = 1
DESCRIPTION, ITEMS, REJECTED = "collection.json", "items.parquet", "rejected.parquet"
STATES = "states.parquet"
"""States of image files: a file whose state is unchanged is not hashed again, as in the index of
git."""
VECTORS, REGIONS, FEATURES = "vectors", "regions", "features"
UNPACKED = "images"
"""Folder for images of archives."""
FOLDER, DATE, SPLIT = "folder", "date", "split"
"""Values that a collection has without the user: of image files, see ``with_origins``, and of a
dataset."""
TIME = pa.timestamp("ms")  # Parquet has no seconds; times of users are of another unit
NOWHERE = -1
"""Shard and row of a deleted item, which has no vector."""

FIELDS = ("size", "mtime_ns", "ctime_ns", "inode")
"""Values that change with a write to a file, or with another file of its name. No program can set
ctime."""
UNKNOWN = (0, 0, 0, 0)
"""State of a file that has to be hashed."""
SETTLED_NS = 2_000_000_000
"""Age of a file from which a further write changes its times: the coarsest clock of a file system
has steps of 2 s."""
STATE_FIELDS = [pa.field(name, pa.int64(), nullable=False) for name in FIELDS]
STATES_SCHEMA = pa.schema([pa.field("item_id", pa.string(), nullable=False), *STATE_FIELDS])

ITEMS_SCHEMA = pa.schema(
    [
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("image", pa.string()),
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("captions", pa.list_(pa.string()), nullable=False),
    ]
)
"""One row per item, and any columns ``meta.*`` with their own types. ``image`` is a path or an
address, relative to the root of the collection; null if the corpus publishes only features, and
width and height are 0 then. They are pixels after EXIF rotation. ``row`` counts within the shard. A
deleted item is a tombstone without a vector, captions and values."""

ITEM = ITEMS_SCHEMA.names[:5]
"""Columns that an item keeps when it is deleted."""

PART_SCHEMA = pa.schema(
    [
        *(field for field in ITEMS_SCHEMA if field.name in ITEM),
        *STATE_FIELDS,
    ]
)
"""One row per vector of a shard, while a collection is written: the item, and the state of its
file."""

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""One row per image that is not in the collection."""


@dataclass(frozen=True)
class ModelIdentity:
    """The model that computed the vectors; ``version`` is None outside a registry, ``sha256`` is
    its ``model_hash``."""

    name: str
    version: str | None
    sha256: str


@dataclass(frozen=True)
class Backbone:
    """The features of an image, (regions, dim) float16, and the hash of the graph and the
    preprocessing that compute them."""

    sha256: str
    regions: int
    dim: int

    @property
    def size(self) -> int:
        """Numbers of an image."""
        return self.regions * self.dim


@dataclass(frozen=True)
class Description:
    """Contents of ``collection.json``."""

    model: ModelIdentity
    root: str  # of the images: an address, or a folder relative to the collection
    dimension: int
    region_dimension: int | None  # None without regions
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    shards: tuple[int, ...] = ()  # vectors of each
    items: int = 0  # without tombstones
    deleted: int = 0
    rejected: int = 0
    follow_links: bool = False  # of the image files, also out of the root
    backbone: Backbone | None = None  # None without stored features

    @property
    def folders(self) -> list[str]:
        """Folders with files of each shard."""
        regions = [] if self.region_dimension is None else [REGIONS]
        return [VECTORS, *regions, *([] if self.backbone is None else [FEATURES])]

    def write(self, file: Path) -> None:
        """Write the description as JSON; a crash leaves no incomplete file."""
        content = {"schema_version": SCHEMA_VERSION, "dtype": "float16", **asdict(self)}
        write_json(file, content)

    @classmethod
    def read(cls, file: Path) -> "Description":
        """Read a description."""
        hint = "embed the collection again"
        content = read_versioned(file, "complete collection", SCHEMA_VERSION, hint)
        # Who hands a collection on may not say this of the links in it.
        is_absolute = Path(str(content.get("root"))).is_absolute()
        content["follow_links"] = bool(content.get("follow_links")) and is_absolute
        if (dtype := content.pop("dtype", None)) != "float16":
            raise ValueError(f"{file} has the dtype {dtype}, expected float16: {hint}")
        description: Description = read_whole(file, lambda _: typed(cls, content))
        return description


def read_table(
    file: Path, columns: list[str] | None = None, ids: pa.Array | None = None
) -> pa.Table:
    """Read a table, or its rows of some items, one batch after the other.
    ``pyarrow.parquet.read_table`` imports pandas, which takes half a second."""

    def read(path: Path) -> pa.Table:
        opened = pq.ParquetFile(path)
        if ids is None:
            return opened.read(columns)
        found = (
            batch.filter(pc.is_in(batch.column("item_id"), value_set=ids))
            for group in range(opened.num_row_groups)  # of several, all would stay in memory
            for batch in opened.iter_batches(row_groups=[group])
        )
        return pa.Table.from_batches([batch for batch in found if len(batch)], opened.schema_arrow)

    return read_whole(file, read)


def without(items: pa.Table, ids: Sequence[str]) -> pa.Table:
    """Return the rows of items, or of their states, that have other ids."""
    named = pc.is_in(items.column("item_id"), value_set=pa.array(ids, pa.string()))
    return items.filter(pc.invert(named))


def read_items(file: Path, ids: pa.Array | None = None) -> pa.Table:
    """Read ``items.parquet``, with the columns of ``ITEMS_SCHEMA`` first."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file; the folder holds no complete collection")
    table = read_table(file, ids=ids)
    for expected in ITEMS_SCHEMA:
        if expected.name not in table.column_names:
            raise ValueError(f"{file} has no column {expected.name!r}: embed the collection again")
        column = table.column(expected.name)
        if column.type != expected.type or (column.null_count and not expected.nullable):
            raise ValueError(
                f"{file}, column {expected.name!r}: type {column.type} with "
                f"{column.null_count} nulls, expected "
                f"{expected.type}{'' if expected.nullable else ' without nulls'}: embed the "
                "collection again"
            )
    own = [name for name in table.column_names if name not in ITEMS_SCHEMA.names]
    unknown = [name for name in own if not name.startswith(META)]
    if unknown:
        raise ValueError(
            f"{file} has the column {unknown[0]!r}: columns of users start with {META!r}"
        )
    return table.select([*ITEMS_SCHEMA.names, *own])


def values_of(table: pa.Table, name: str) -> NDArray[Any]:
    """Return a column of integers or truth values without nulls; ``to_numpy`` imports pandas: half
    a second."""
    column = table.column(name).combine_chunks()
    if pa.types.is_boolean(column.type):
        return np.from_dlpack(column.cast(pa.uint8())).astype(bool)
    values: NDArray[Any] = np.from_dlpack(column)
    return values


def shard_name(number: int) -> str:
    """Return the name of the files of a shard, without their suffix."""
    return f"{number:05d}"


def file_states(folder: Path, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the states (n, 4) of files before they are read, ``UNKNOWN`` if changed in the last
    two seconds."""
    latest, prefix = time.time_ns() - SETTLED_NS, f"{folder}{os.sep}"
    states = []
    for name in names:
        try:
            found = os.stat(prefix + name)  # noqa: PTH116 - a Path takes longer than the call
        except OSError:
            states.append(UNKNOWN)
            continue
        new = max(found.st_mtime_ns, found.st_ctime_ns) >= latest
        states.append(
            UNKNOWN if new else (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        )
    return np.array(states, np.int64).reshape(-1, len(FIELDS))


def write_states(directory: Path, items: pa.Table) -> None:
    """Write the states of a collection's items, a table with ``STATES_SCHEMA``; nothing if all are
    unknown."""
    table = items.select(STATES_SCHEMA.names)
    known = table.filter(pc.not_equal(table.column("mtime_ns"), 0))
    if len(known):
        pq.write_table(known, directory / STATES)


def stored_states(directory: Path, ids: pa.Array | None = None) -> pa.Table:
    """Return the stored states of a collection's items, with ``STATES_SCHEMA``; no rows if none are
    stored."""
    file = directory / STATES
    return read_table(file, ids=ids) if file.is_file() else STATES_SCHEMA.empty_table()
