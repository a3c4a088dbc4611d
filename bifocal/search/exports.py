"""Export of a collection to other tools: a Parquet table with vectors, described in Croissant."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.datasets.base import META
from bifocal.durable import file_digest, new_folder, write_json
from bifocal.search.collection.collection import Collection

BLOCK = 1024
"""Items that are in memory at once."""
TABLE = "items.parquet"
CROISSANT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "recordSet": "cr:recordSet",
    "repeated": "cr:repeated",
    "source": "cr:source",
}
"""Names of the format, version 1.0."""


def export_collection(collection: Collection, directory: Path) -> int:
    """Write the items of a collection that are not deleted; return their number."""
    with new_folder(directory) as partial:
        _write_table(collection, partial / TABLE)
        _write_croissant(collection, partial)
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


def _write_croissant(collection: Collection, directory: Path) -> None:
    """Write ``items.parquet`` with captions, metadata and vectors, and ``croissant.json``."""
    _write_table(collection, directory / TABLE)
    schema = pq.read_schema(directory / TABLE)
    digest = file_digest(directory / TABLE)
    content = {
        "@context": CROISSANT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": collection.model.name,
        "description": f"{collection.description.items} images with vectors of the model "
        f"{collection.model.name}.",
        "url": ".",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": TABLE,
                "name": TABLE,
                "contentUrl": TABLE,
                "encodingFormat": "application/x-parquet",
                "sha256": digest,
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "items",
                "name": "items",
                "key": {"@id": "items/item_id"},
                "field": [_croissant_field(field) for field in schema],
            }
        ],
    }
    write_json(directory / "croissant.json", content)


def _croissant_field(field: pa.Field) -> dict[str, Any]:
    types = pa.types
    is_list = types.is_list(field.type) or types.is_fixed_size_list(field.type)
    kind, name = field.type.value_type if is_list else field.type, "sc:Text"
    if types.is_boolean(kind):
        name = "sc:Boolean"
    elif types.is_integer(kind):
        name = "sc:Integer"
    elif types.is_floating(kind):
        name = "sc:Float"
    elif types.is_temporal(kind):
        name = "sc:Date"
    return {
        "@type": "cr:Field",
        "@id": f"items/{field.name}",
        "name": f"items/{field.name}",
        "dataType": name,
        "source": {"fileObject": {"@id": TABLE}, "extract": {"column": field.name}},
        **({"repeated": True} if is_list else {}),
    }
