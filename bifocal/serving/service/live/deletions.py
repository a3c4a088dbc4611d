"""Items that were deleted while the service ran."""

import errno
import json
import os
import threading
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path


class Deletions:
    """Ids of deleted items, kept in a file of one JSON string per line."""

    def __init__(self, file: Path | None = None) -> None:
        self._file, self._lock = file, threading.Lock()
        content = file.read_text("utf-8") if file is not None and file.is_file() else ""
        self._incomplete = bool(content) and not content.endswith("\n")  # the process was killed while it wrote
        lines = content.split("\n")[:-1]
        self._ids = {str(json.loads(line)) for line in lines if _is_complete(line)}

    def __contains__(self, item_id: object) -> bool:
        """Return whether an item is deleted."""
        return item_id in self._ids

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids."""
        return iter(self._ids)

    def add(self, item_id: str) -> None:
        """Delete an item; it stays deleted after a crash."""
        if self._file is not None:
            line = "\n" * self._incomplete + json.dumps(item_id) + "\n"
            with self._lock, self._file.open("ab", buffering=0) as file:
                self._append(file, line.encode())
            self._incomplete = False
        self._ids.add(item_id)

    def _append(self, file: RawIOBase, line: bytes) -> None:
        """Write a line to the disk; after an error, such as a full disk, the file has its former length."""
        length = file.seek(0, os.SEEK_END)
        try:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            self._incomplete = True  # unless the line is cut back, the next one begins a new line
            file.truncate(length)
            self._incomplete = False
            raise


def _is_complete(line: str) -> bool:
    try:
        return isinstance(json.loads(line), str)
    except ValueError:
        return False
