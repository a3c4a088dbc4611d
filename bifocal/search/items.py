"""Captions, metadata and image files of the items of an index."""

from collections.abc import Callable
from functools import lru_cache, partial
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from bifocal.datasets.base import META
from bifocal.durable import open_once, path_inside, plain

CACHED = 4096
"""Items whose facts stay in memory."""


class Items:
    """Facts and files of the items in the rows of a table.

    Args:
        table: columns of a collection; only ``item_id`` is required.
        folder: of the image files; None if the images are at an address.
        follow_links: the files may be links out of the folder.
    """

    def __init__(
        self, table: pa.Table, folder: Path | None = None, *, follow_links: bool = False
    ) -> None:
        self._follow_links = follow_links
        self._columns, self._folder = {name: table[name] for name in table.column_names}, folder
        self._has_files = folder is not None and folder.is_dir()
        self._metadata = {
            name.removeprefix(META): name for name in table.column_names if name.startswith(META)
        }
        self.facts = lru_cache(CACHED)(self._facts)

    def captions(self, row: int) -> list[str]:
        """Return the sentences of an item."""
        return self._value("captions", row) or []

    def file(self, row: int) -> Path | None:
        """Return the file of an item's image; None at an address, or for a path out of the
        folder."""
        name = self._value("image", row)
        if name is None or self._folder is None:
            return None
        try:
            return path_inside(self._folder, name, caches=True, follow_links=self._follow_links)
        except ValueError:
            return None

    def opener(self, row: int) -> Callable[[], BufferedReader]:
        """Return the function that opens the file of an item's image, also in another process;
        ``OSError`` or ``ValueError`` if there is none."""
        return partial(_open, self.file(row))

    def _facts(self, row: int) -> dict[str, Any]:
        """Return the fields of ``ItemFacts``."""
        image: str | None = self._value("image", row)
        return {
            "id": self._value("item_id", row),
            "captions": self.captions(row),
            "metadata": {
                name: plain(self._value(column, row)) for name, column in self._metadata.items()
            },
            "name": None if image is None else PurePosixPath(image).name,
            "width": self._value("width", row) or 0,
            "height": self._value("height", row) or 0,
            "has_image": self._has_files and image is not None,
        }

    def _value(self, name: str, row: int) -> Any:
        column = self._columns.get(name)
        return None if column is None else column[row].as_py()


def _open(file: Path | None) -> BufferedReader:
    if file is None:
        raise FileNotFoundError("the item has no image file")
    return open_once(file)
