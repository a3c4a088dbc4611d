"""PostgreSQL with pgvector: SQL of a table, and a CSV file for COPY; captions and user values are JSON."""

import csv
import json
import re
from pathlib import Path
from typing import Any

from bifocal.search.collection.collection import Collection
from bifocal.search.exports.base import blocks

COLUMNS = ("item_id", "image", "sha256", "width", "height", "captions", "meta", "embedding")
MOST_INDEXED = 4000
"""Dimensions of a ``halfvec`` that an HNSW index of pgvector accepts."""
SCHEMA = """-- psql --file import.sql, in this folder; pgvector 0.7 or newer.
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
INDEX = "CREATE INDEX ON {name} USING hnsw (embedding halfvec_cosine_ops);\n"


def write(collection: Collection, directory: Path) -> None:
    """Write ``import.sql`` and ``items.csv``."""
    name = table_name(collection.model.name)
    text = SCHEMA.format(name=name, dimension=collection.dimension, columns=", ".join(COLUMNS))
    if collection.dimension <= MOST_INDEXED:
        text += INDEX.format(name=name)
    (directory / "import.sql").write_text(text, encoding="utf-8")
    with (directory / "items.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for block, vectors in blocks(collection):
            for row, vector in zip(block, vectors, strict=True):
                rows.writerow([_field(name, row, vector) for name in COLUMNS])


def table_name(model: str) -> str:
    """Return the name of a model as an SQL identifier."""
    plain = re.sub(r"\W+", "_", model.lower(), flags=re.ASCII).strip("_") or "items"
    return f"t_{plain}" if plain[0].isdigit() else plain


def _field(name: str, row: dict[str, Any], vector: Any) -> Any:
    if name == "embedding":
        return "[" + ",".join(f"{value:.5g}" for value in vector.tolist()) + "]"
    value = row[name]
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else value
