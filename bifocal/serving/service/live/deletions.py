"""Items that were deleted while the service ran."""

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bifocal.durable import append_line
from bifocal.search.index.index import SearchIndex


@dataclass
class DeletedRows:
    """Deleted items of an index: a mask (N,) and their number, of the first ``seen`` deletions."""

    mask: NDArray[np.bool_]
    count: int = 0
    seen: int = 0


class Deletions:
    """Ids of deleted items, kept in a file of one JSON string per line, to which other processes may add."""

    def __init__(self, file: Path | None = None) -> None:
        self._file, self._lock, self._size = file, threading.Lock(), 0
        self.ids: list[str] = []  # in the order of the deletions
        self._known: set[str] = set()
        self._rows: WeakKeyDictionary[SearchIndex, DeletedRows] = WeakKeyDictionary()
        self.read_file()

    def __contains__(self, item_id: object) -> bool:
        """Return whether an item is deleted."""
        return item_id in self._known

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids."""
        return iter(self.ids)

    def read_file(self) -> None:
        """Read the deletions of other processes: lines of the file since the last call."""
        try:
            size = 0 if self._file is None else self._file.stat().st_size
        except FileNotFoundError:
            size = 0
        if size == self._size or self._file is None:
            return
        with self._lock:
            if size < self._size:  # cut back after a full disk, or another file
                self._size = 0
            with self._file.open("rb") as file:
                file.seek(self._size)
                content = file.read()
            # A line without an end is being written, or was when its process was killed.
            complete = content[: content.rfind(b"\n") + 1]
            self._size += len(complete)
        self.include(read_ids(content.decode("utf-8", "replace"))[0])

    def rows(self, index: SearchIndex) -> DeletedRows:
        """Return which items of an index are deleted; a second call looks only at the deletions since the first."""
        with self._lock:
            if index not in self._rows:
                self._rows[index] = DeletedRows(np.zeros(len(index.ids), dtype=bool))
            found = self._rows[index]
            for item_id in self.ids[found.seen :]:
                if item_id in index:
                    found.mask[index.row(item_id)] = True
                    found.count += 1
            found.seen = len(self.ids)
        return found

    def add(self, item_id: str) -> None:
        """Delete an item; it stays deleted after a crash."""
        if self._file is not None:
            append_line(self._file, json.dumps(item_id))
        self.include([item_id])

    def include(self, item_ids: Iterable[str]) -> None:
        """Note that items are deleted."""
        with self._lock:
            for item_id in item_ids:
                if item_id not in self._known:
                    self._known.add(item_id)
                    self.ids.append(item_id)


def read_ids(text: str) -> tuple[list[str], list[str]]:
    """Return the ids in lines of JSON strings, and the lines that a killed process or a full disk has cut.

    >>> read_ids('"a"\\n\\n"b c"\\n"to')
    (['a', 'b c'], ['"to'])
    """
    ids, incomplete = list[str](), list[str]()
    for line in text.split("\n"):
        try:
            value = json.loads(line) if line.strip() else None
        except ValueError:
            value = None
        if isinstance(value, str):
            ids.append(value)
        elif line.strip():
            incomplete.append(line)
    return ids, incomplete
