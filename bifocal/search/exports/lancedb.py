"""LanceDB: a Parquet table whose column ``vector`` is a fixed-size list, the type that LanceDB searches."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import META
from bifocal.search.exports.base import blocks

TABLE = "items.parquet"
IMPORT = """import lancedb
import pyarrow.parquet as pq

table = lancedb.connect("lancedb").create_table("{name}", pq.read_table("items.parquet"))
print(table.search([0.0] * {dimension}).metric("cosine").limit(3).to_list())
"""


def write(collection: Collection, directory: Path) -> None:
    """Write ``items.parquet`` and ``import.py``."""
    write_items(collection, directory / TABLE)
    text = IMPORT.format(name=collection.model.name, dimension=collection.dimension)
    (directory / "import.py").write_text(text, encoding="utf-8")


def write_items(collection: Collection, target: Path) -> None:
    """Write the items with captions, metadata and vectors as a Parquet table."""
    own = {name: f"meta_{name.removeprefix(META)}" for name in collection.items.column_names if name.startswith(META)}
    schema = pa.schema(
        [
            ("item_id", pa.string()),
            ("image", pa.string()),
            ("sha256", pa.string()),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("captions", pa.list_(pa.string())),
            *((own[name], collection.items.schema.field(name).type) for name in own),
            ("vector", pa.list_(pa.float32(), collection.dimension)),
        ]
    )
    with pq.ParquetWriter(target, schema) as file:
        for rows, vectors in blocks(collection):
            columns = {
                name: [row["meta"][name.removeprefix("meta_")] if name in own.values() else row[name] for row in rows]
                for name in schema.names
                if name != "vector"
            }
            arrays = [pa.array(columns[field.name], field.type) for field in schema if field.name != "vector"]
            flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
            arrays.append(pa.FixedSizeListArray.from_arrays(flat, collection.dimension))
            file.write_batch(pa.record_batch(arrays, schema=schema))
