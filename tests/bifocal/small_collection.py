"""A small collection of drawn vectors."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item


def write_collection(folder: Path, names: list[str]) -> Collection:
    """Write items with a caption each, a year, and vectors (2,) at 0, 1, 2 ... radians."""
    writer = CollectionWriter(
        folder, Description(ModelIdentity("mine", None, "ab" * 32), "images", 2, None)
    )
    for row, name in enumerate(names):
        writer.add(
            Item(name, f"{name}.jpg", f"{row:064x}", 8, 8),
            np.array([np.cos(row), np.sin(row)], np.float16),
        )
    writer.finish(
        {name: [f"a {name}"] for name in names},
        pa.table({"item_id": names, "meta.year": range(len(names))}),
    )
    return Collection.open(folder)
