"""Exports of a collection to other tools: files that their documented import reads."""

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.datasets.base import META
from bifocal.durable import new_folder
from bifocal.search.collection.collection import Collection

FORMATS: Mapping[str, str] = {
    "croissant": "a Parquet table, and its description in Croissant, which mlcroissant loads",
    "lancedb": "a Parquet table with a column of vectors, which LanceDB's create_table reads",
    "pgvector": "SQL of a table, and a CSV file that PostgreSQL's COPY reads",
    "qdrant": "bodies of the requests that create a collection of Qdrant and fill it",
}
"""Contents by format."""
BLOCK = 1024
"""Items that are in memory at once."""
TABLE = "items.parquet"
LANCEDB = """import lancedb
import pyarrow.parquet as pq

table = lancedb.connect("lancedb").create_table("{name}", pq.read_table("items.parquet"))
print(table.search([0.0] * {dimension}).metric("cosine").limit(3).to_list())
"""
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
QDRANT = """# URL=http://localhost:6333 sh import.sh
set -e
curl --fail -X PUT "$URL/collections/{name}" -H 'Content-Type: application/json' --data @collection.json
for file in points/*.json; do
  curl --fail -X PUT "$URL/collections/{name}/points?wait=true" -H 'Content-Type: application/json' --data "@$file"
done
"""
COLUMNS = ("item_id", "image", "sha256", "width", "height", "captions", "meta", "embedding")
MOST_INDEXED = 4000
"""Dimensions of a ``halfvec`` that an HNSW index of pgvector accepts."""
PGVECTOR = """-- psql --file import.sql, in this folder; pgvector 0.7 or newer.
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE {name} (
  item_id text PRIMARY KEY,
  image text,
  sha256 text NOT NULL,
  width integer NOT NULL,
  height integer NOT NULL,
  captions jsonb NOT NULL,
  meta jsonb NOT NULL,
  embedding halfvec({dimension}) NOT NULL
);
\\copy {name} ({columns}) FROM 'items.csv' WITH (FORMAT csv, HEADER true)
"""
PGVECTOR_INDEX = "CREATE INDEX ON {name} USING hnsw (embedding halfvec_cosine_ops);\n"


def export_collection(collection: Collection, directory: Path, name: str) -> int:
    """Write the items of a collection that are not deleted in a format; return their number."""
    if name not in FORMATS:
        raise KeyError(f"no format {name!r}; available: {', '.join(FORMATS)}")
    writers: dict[str, Callable[[Collection, Path], None]] = {
        "croissant": _write_croissant,
        "lancedb": _write_lancedb,
        "pgvector": _write_pgvector,
        "qdrant": _write_qdrant,
    }
    with new_folder(directory) as partial:
        writers[name](collection, partial)
    return collection.description.items


def _blocks(collection: Collection) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """Yield ``BLOCK`` rows (columns of ``items.parquet``, user values in ``meta``) and their
    vectors (n, D) float16."""
    live = (~collection.deleted).nonzero()[0]
    for start in range(0, len(live), BLOCK):
        chosen = live[start : start + BLOCK]
        rows = collection.items.take(chosen).to_pylist()
        yield (
            [_row(collection, int(number), row) for number, row in zip(chosen, rows, strict=True)],
            (collection.vectors[chosen]),
        )


def _row(collection: Collection, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    image = collection.image(number)
    return {
        **{name: row[name] for name in ("item_id", "sha256", "width", "height", "captions")},
        "image": None
        if image is None
        else str(image.resolve() if isinstance(image, Path) else image),
        "meta": {
            name.removeprefix(META): value for name, value in row.items() if name.startswith(META)
        },
    }


def _write_table(collection: Collection, target: Path) -> None:
    """Write the items with captions, metadata and vectors; ``vector`` is a fixed-size list, which
    LanceDB searches."""
    own = {
        name: f"meta_{name.removeprefix(META)}"
        for name in collection.items.column_names
        if name.startswith(META)
    }
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
        for rows, vectors in _blocks(collection):
            columns = {
                name: [
                    row["meta"][name.removeprefix("meta_")] if name in own.values() else row[name]
                    for row in rows
                ]
                for name in schema.names
                if name != "vector"
            }
            arrays = [
                pa.array(columns[field.name], field.type)
                for field in schema
                if field.name != "vector"
            ]
            flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
            arrays.append(pa.FixedSizeListArray.from_arrays(flat, collection.dimension))
            file.write_batch(pa.record_batch(arrays, schema=schema))


def _write_lancedb(collection: Collection, directory: Path) -> None:
    """Write ``items.parquet`` and ``import.py``."""
    _write_table(collection, directory / TABLE)
    text = LANCEDB.format(name=collection.model.name, dimension=collection.dimension)
    (directory / "import.py").write_text(text, encoding="utf-8")


def _write_croissant(collection: Collection, directory: Path) -> None:
    """Write ``items.parquet`` with captions, metadata and vectors, and ``croissant.json``."""
    _write_table(collection, directory / TABLE)
    schema = pq.read_schema(directory / TABLE)
    with (directory / TABLE).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
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
    (directory / "croissant.json").write_text(
        json.dumps(content, indent=2) + "\n", encoding="utf-8"
    )


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


def _write_pgvector(collection: Collection, directory: Path) -> None:
    """Write ``import.sql`` and ``items.csv``; captions and user values are JSON."""
    name = table_name(collection.model.name)
    text = PGVECTOR.format(name=name, dimension=collection.dimension, columns=", ".join(COLUMNS))
    if collection.dimension <= MOST_INDEXED:
        text += PGVECTOR_INDEX.format(name=name)
    (directory / "import.sql").write_text(text, encoding="utf-8")
    with (directory / "items.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for block, vectors in _blocks(collection):
            for row, vector in zip(block, vectors, strict=True):
                row["embedding"] = "[" + ",".join(f"{value:.5g}" for value in vector.tolist()) + "]"
                row |= {
                    key: json.dumps(row[key], ensure_ascii=False, default=str)
                    for key in ("captions", "meta")
                }
                rows.writerow([row[column] for column in COLUMNS])


def table_name(model: str) -> str:
    """Return the name of a model as an SQL identifier."""
    plain = re.sub(r"\W+", "_", model.lower(), flags=re.ASCII).strip("_") or "items"
    return f"t_{plain}" if plain[0].isdigit() else plain


def _write_qdrant(collection: Collection, directory: Path) -> None:
    """Write ``collection.json``, ``points/00000.json`` and so on, and ``import.sh``."""
    vectors: dict[str, Any] = {
        "size": collection.dimension,
        "distance": "Cosine",
        "datatype": "float16",
    }
    (directory / "collection.json").write_text(
        json.dumps({"vectors": vectors}) + "\n", encoding="utf-8"
    )
    (directory / "points").mkdir()
    for number, (rows, block) in enumerate(_blocks(collection)):
        points = [
            {
                "id": str(point_id(row["item_id"])),
                "vector": vector.astype(float).tolist(),
                "payload": row,
            }
            for row, vector in zip(rows, block, strict=True)
        ]
        text = json.dumps({"points": points}, ensure_ascii=False, default=str)
        (directory / "points" / f"{number:05d}.json").write_text(text + "\n", encoding="utf-8")
    (directory / "import.sh").write_text(
        QDRANT.format(name=collection.model.name), encoding="utf-8"
    )


def point_id(item_id: str) -> UUID:
    """Return the id of the point of an item: Qdrant rejects other texts than UUIDs."""
    return uuid5(NAMESPACE_URL, item_id)
