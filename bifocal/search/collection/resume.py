"""Resume a collection that a killed run left: its complete shards are kept if their images have not changed since."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bifocal.search.collection.format import Description
from bifocal.search.collection.sources import Entry, Source
from bifocal.search.collection.stat_cache import FIELDS
from bifocal.search.collection.writer import CollectionWriter


def open_writer(
    directory: Path,
    description: Description,
    items_per_shard: int,
    source: Source,
    entries: Sequence[Entry],
    states: NDArray[np.int64],
) -> CollectionWriter:
    """Return a writer, without the shards of a killed run if one of their images has changed since."""
    writer = CollectionWriter(directory, description, items_per_shard)
    position_of = {entry.item_id: position for position, entry in enumerate(entries)}
    for row in writer.written.to_pylist():
        position = position_of.get(row["item_id"])
        if position is None or not _as_written(row, source, entries[position], states[position]):
            writer.clear()
            break
    return writer


def _as_written(row: Mapping[str, Any], source: Source, entry: Entry, state: NDArray[np.int64]) -> bool:
    """Return whether the killed run embedded this image, unchanged since."""
    if entry.sha256 is not None or source.dataset is not None:
        return entry.sha256 is None or entry.sha256 == str(row["sha256"])
    if state.any() and state.tolist() == [row[name] for name in FIELDS]:
        return True
    file = source.open(entry)
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == str(row["sha256"])
