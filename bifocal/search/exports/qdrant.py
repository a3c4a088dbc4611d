"""Qdrant: requests that create a collection and upsert points; ids are UUIDs, because Qdrant rejects other texts."""

import json
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from bifocal.search.collection.collection import Collection
from bifocal.search.exports.base import blocks

IMPORT = """# URL=http://localhost:6333 sh import.sh
set -e
curl --fail -X PUT "$URL/collections/{name}" -H 'Content-Type: application/json' --data @collection.json
for file in points/*.json; do
  curl --fail -X PUT "$URL/collections/{name}/points?wait=true" -H 'Content-Type: application/json' --data "@$file"
done
"""


def write(collection: Collection, directory: Path) -> None:
    """Write ``collection.json``, ``points/00000.json`` and so on, and ``import.sh``."""
    vectors: dict[str, Any] = {"size": collection.dimension, "distance": "Cosine", "datatype": "float16"}
    (directory / "collection.json").write_text(json.dumps({"vectors": vectors}) + "\n", encoding="utf-8")
    (directory / "points").mkdir()
    for number, (rows, block) in enumerate(blocks(collection)):
        points = [
            {"id": str(point_id(row["item_id"])), "vector": vector.astype(float).tolist(), "payload": row}
            for row, vector in zip(rows, block, strict=True)
        ]
        text = json.dumps({"points": points}, ensure_ascii=False, default=str)
        (directory / "points" / f"{number:05d}.json").write_text(text + "\n", encoding="utf-8")
    (directory / "import.sh").write_text(IMPORT.format(name=collection.model.name), encoding="utf-8")


def point_id(item_id: str) -> UUID:
    """Return the id of the point of an item."""
    return uuid5(NAMESPACE_URL, item_id)
