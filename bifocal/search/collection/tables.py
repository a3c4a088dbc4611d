"""The table ``items.parquet`` of a collection, from the items of its shards, captions, metadata and tombstones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bifocal.search.collection.format import ITEMS_SCHEMA, META, NOWHERE, PART_SCHEMA


def items_table(
    shards: Sequence[pa.Table],
    captions: Mapping[str, Sequence[str]],
    tombstones: pa.Table,
    order: Sequence[str] | None,
) -> pa.Table:
    """Return the items with the columns of ``ITEMS_SCHEMA``, in ``order`` or as their vectors; tombstones are last."""
    counts = [len(items) for items in shards]
    written = pa.concat_tables([PART_SCHEMA.empty_table(), *shards])
    shard = np.repeat(np.arange(len(counts)), counts)
    row = np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)])
    if order is not None:
        found = pc.index_in(pa.array(order, pa.string()), value_set=written.column("item_id")).drop_null()
        written, shard, row = written.take(found), shard[found.to_numpy()], row[found.to_numpy()]
    items = pa.concat_tables([written, tombstones])
    if pc.count_distinct(items.column("item_id")).as_py() != len(items):
        raise ValueError(f"an item occurs twice among {len(items)}: give each item its own id")
    gone = np.full(len(tombstones), NOWHERE)
    texts = [list(captions.get(item_id, ())) for item_id in written.column("item_id").to_pylist()] if captions else []
    columns: dict[str, Any] = {
        "shard": np.concatenate([shard, gone]),
        "row": np.concatenate([row, gone]),
        "deleted": np.arange(len(items)) >= len(written),
        "captions": texts + [[]] * (len(items) - len(texts)),
    }
    values = [columns[name] if name in columns else items.column(name) for name in ITEMS_SCHEMA.names]
    return pa.table(values, schema=ITEMS_SCHEMA)


def with_metadata(table: pa.Table, metadata: pa.Table) -> pa.Table:
    """Append the columns of ``metadata`` as ``meta.*``, in the order of the items; a tombstone has nulls."""
    rows = pc.index_in(table.column("item_id"), value_set=metadata.column("item_id").cast(pa.string()))
    rows = pc.if_else(table.column("deleted"), pa.scalar(None, rows.type), rows)
    for name in metadata.column_names:
        if name != "item_id":
            table = table.append_column(f"{META}{name}", metadata.column(name).take(rows))
    return table
