"""States of image files: a file whose state is unchanged is not hashed again, as in the index of git."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

STATES = "states.parquet"
FIELDS = ("size", "mtime_ns", "ctime_ns", "inode")
"""Values that change with a write to a file, or with another file of its name. No program can set ctime."""
UNKNOWN = (0, 0, 0, 0)
"""State of a file that has to be hashed."""
SETTLED_NS = 2_000_000_000
"""Age of a file from which a further write changes its times: the coarsest clock of a file system has steps of 2 s."""
STATE_FIELDS = [pa.field(name, pa.int64(), nullable=False) for name in FIELDS]
STATES_SCHEMA = pa.schema([pa.field("item_id", pa.string(), nullable=False), *STATE_FIELDS])


def file_states(folder: Path, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the states (n, 4) of files before they are read, ``UNKNOWN`` if changed in the last two seconds."""
    latest, prefix = time.time_ns() - SETTLED_NS, f"{folder}{os.sep}"
    states = []
    for name in names:
        try:
            found = os.stat(prefix + name)  # noqa: PTH116 - a Path takes longer than the call
        except OSError:
            states.append(UNKNOWN)
            continue
        new = max(found.st_mtime_ns, found.st_ctime_ns) >= latest
        states.append(UNKNOWN if new else (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))
    return np.array(states, np.int64).reshape(-1, len(FIELDS))


def same_states(former: NDArray[np.int64], states: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for states (n, 4) of two runs which files (n,) are unchanged."""
    same: NDArray[np.bool_] = (former == states).all(axis=1) & (states != 0).any(axis=1)
    return same


def write_states(directory: Path, items: pa.Table) -> None:
    """Write the states of a collection's items, a table with ``STATES_SCHEMA``; nothing if all are unknown."""
    table = items.select(STATES_SCHEMA.names)
    known = table.filter(pc.not_equal(table.column("mtime_ns"), 0))
    if len(known):
        pq.write_table(known, directory / STATES)


def stored_states(directory: Path) -> pa.Table:
    """Return the stored states of a collection's items, with ``STATES_SCHEMA``; no rows if none are stored."""
    file = directory / STATES
    return pq.read_table(file, schema=STATES_SCHEMA) if file.is_file() else STATES_SCHEMA.empty_table()


def read_states(directory: Path, item_ids: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the states (N, 4) of a collection's items by their ids; ``UNKNOWN`` if they are not stored."""
    table = stored_states(directory)
    rows = pc.index_in(item_ids, value_set=table.column("item_id"))
    columns: list[Any] = [table.column(name).take(rows).fill_null(0).to_numpy() for name in FIELDS]
    return np.stack(columns, axis=1)
