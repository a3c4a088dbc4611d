"""Formats of exports by their names, and the rows that all of them write."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from bifocal.durable import new_folder
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import META

FORMATS: Mapping[str, str] = {
    "croissant": "a Parquet table, and its description in Croissant, which mlcroissant loads",
    "lancedb": "a Parquet table with a column of vectors, which LanceDB's create_table reads",
    "pgvector": "SQL of a table, and a CSV file that PostgreSQL's COPY reads",
    "qdrant": "bodies of the requests that create a collection of Qdrant and fill it",
}
"""Contents by format; the module of this package with the name of the format has a function ``write``."""
BLOCK = 1024
"""Items that are in memory at once."""


def export_collection(collection: Collection, directory: Path, name: str) -> int:
    """Write the items of a collection that are not deleted in a format; return their number."""
    if name not in FORMATS:
        raise KeyError(f"no format {name!r}; available: {', '.join(FORMATS)}")
    write: Callable[[Collection, Path], None] = import_module(f"bifocal.search.exports.{name}").write
    with new_folder(directory) as partial:
        write(collection, partial)
    return collection.description.items


def blocks(collection: Collection) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """Yield ``BLOCK`` rows (columns of ``items.parquet``, user values in ``meta``) and their vectors (n, D) float16."""
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
        "image": None if image is None else str(image.resolve() if isinstance(image, Path) else image),
        "meta": {name.removeprefix(META): value for name, value in row.items() if name.startswith(META)},
    }
