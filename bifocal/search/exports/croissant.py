"""Croissant: the items as Parquet, and their description in the format of MLCommons, which mlcroissant loads."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from bifocal.search.collection.collection import Collection
from bifocal.search.exports.lancedb import TABLE, write_items

DESCRIPTION = "croissant.json"
CONTEXT = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/", "dct": "http://purl.org/dc/terms/", "citeAs": "cr:citeAs",
    "column": "cr:column", "conformsTo": "dct:conformsTo", "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"}, "extract": "cr:extract", "field": "cr:field",
    "fileObject": "cr:fileObject", "recordSet": "cr:recordSet", "repeated": "cr:repeated", "source": "cr:source",
}  # fmt: skip
"""Names of the format, version 1.0."""


def write(collection: Collection, directory: Path) -> None:
    """Write ``items.parquet`` with captions, metadata and vectors, and ``croissant.json``."""
    write_items(collection, directory / TABLE)
    schema = pq.read_schema(directory / TABLE)
    with (directory / TABLE).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    content = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": collection.model.name,
        "description": f"{collection.description.items} images with vectors of the model {collection.model.name}.",
        "url": ".",
        "distribution": [
            {
                "@type": "cr:FileObject", "@id": TABLE, "name": TABLE, "contentUrl": TABLE,
                "encodingFormat": "application/x-parquet", "sha256": digest,
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet", "@id": "items", "name": "items",
                "key": {"@id": "items/item_id"}, "field": [_field(field) for field in schema],
            }
        ],
    }  # fmt: skip
    (directory / DESCRIPTION).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _field(field: pa.Field) -> dict[str, Any]:
    is_list = types.is_list(field.type) or types.is_fixed_size_list(field.type)
    return {
        "@type": "cr:Field",
        "@id": f"items/{field.name}",
        "name": f"items/{field.name}",
        "dataType": _data_type(field.type.value_type if is_list else field.type),
        "source": {"fileObject": {"@id": TABLE}, "extract": {"column": field.name}},
        **({"repeated": True} if is_list else {}),
    }


def _data_type(kind: pa.DataType) -> str:
    if types.is_boolean(kind):
        return "sc:Boolean"
    if types.is_integer(kind):
        return "sc:Integer"
    if types.is_floating(kind):
        return "sc:Float"
    return "sc:Date" if types.is_temporal(kind) else "sc:Text"
