"""Export of a collection to other tools: a Parquet table with vectors."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.datasets.base import META
from bifocal.durable import new_folder
from bifocal.search.collection.collection import Collection

BLOCK = 1024
"""Items that are in memory at once."""
TABLE = "items.parquet"


def export_collection(collection: Collection, directory: Path) -> int:
    """Write the items of a collection that are not deleted; return their number."""
    with new_folder(directory) as partial:
        _write_table(collection, partial / TABLE)
    return collection.description.items


def _write_table(collection: Collection, target: Path) -> None:
    """Write the items with captions, metadata ``meta_NAME`` and vectors, a list of a fixed size."""
    facts, live = collection.facts, np.flatnonzero(~collection.deleted)
    facts = facts.rename_columns(
        [
            f"meta_{name.removeprefix(META)}" if name.startswith(META) else name
            for name in facts.column_names
        ]
    )
    kind = pa.list_(pa.float32(), collection.dimension)
    schema = pa.schema([*map(facts.schema.field, facts.column_names), pa.field("vector", kind)])
    with pq.ParquetWriter(target, schema) as file:
        for start in range(0, len(live), BLOCK):
            rows = live[start : start + BLOCK]
            images = [collection.image(row) for row in rows.tolist()]
            places = [
                str(image.resolve() if isinstance(image, Path) else image) if image else None
                for image in images
            ]
            flat = pa.array(np.asarray(collection.vectors[rows], np.float32).reshape(-1))
            block = facts.take(rows).append_column(
                "vector", pa.FixedSizeListArray.from_arrays(flat, collection.dimension)
            )
            column = block.column_names.index("image")
            file.write_table(block.set_column(column, "image", [places]).cast(schema))
