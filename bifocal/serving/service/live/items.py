"""Captions, metadata and image files of the items of a collection."""

import math
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from bifocal.datasets.remote_files import is_address
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import META, path_inside

CACHED = 4096
"""Items whose facts stay in memory."""


class Items:
    """Captions, metadata and image files by the ids of items; ``images`` replaces the root of the collection."""

    def __init__(self, collection: Collection, images: Path | None = None) -> None:
        self._collection, root = collection, collection.description.root
        self._folder = collection.directory / root if images is None else images
        self._has_files = images is not None or (not is_address(root) and self._folder.is_dir())
        self.facts = lru_cache(CACHED)(self._facts)
        self._columns = [name for name in collection.items.column_names if name.startswith(META)]

    def _row(self, item_id: str) -> int:
        if (row := self._collection.lookup.row(item_id)) is None:
            raise KeyError(item_id)
        return row

    def captions(self, item_id: str) -> list[str]:
        """Return the sentences of an item."""
        return self._collection.captions(self._row(item_id))

    def metadata(self, item_id: str) -> dict[str, Any]:
        """Return the values of an item as JSON has them: times are texts, and a number that is not finite is None."""
        row = self._row(item_id)
        values = {name.removeprefix(META): self._collection.items[name][row].as_py() for name in self._columns}
        plain = (bool, int, float, str, type(None))
        values = {name: value if isinstance(value, plain) else str(value) for name, value in values.items()}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }

    def has_image(self, item_id: str) -> bool:
        """Return whether an item names an image of a folder that this machine has; ``file`` checks the path too."""
        return self._has_files and self._collection.items["image"][self._row(item_id)].is_valid

    def _facts(self, item_id: str) -> dict[str, Any]:
        """Return the fields of ``schema.Item``."""
        row, table = self._row(item_id), self._collection.items
        image: str | None = table["image"][row].as_py()
        return {
            "id": item_id, "captions": self.captions(item_id), "metadata": self.metadata(item_id),
            "name": None if image is None else PurePosixPath(image).name,
            "width": table["width"][row].as_py(), "height": table["height"][row].as_py(),
            "has_image": self.has_image(item_id),
        }  # fmt: skip

    def file(self, item_id: str) -> Path | None:
        """Return the file of an item's image; None at an address, without the folder, or for a path out of it."""
        name: str | None = self._collection.items["image"][self._row(item_id)].as_py()
        if name is None or not self._has_files:
            return None
        try:
            return path_inside(self._folder, name)
        except ValueError:
            return None
