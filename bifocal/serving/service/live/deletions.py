"""Items that were deleted while the service ran."""

import json
import os
from collections.abc import Iterator
from pathlib import Path


class Deletions:
    """Ids of deleted items, kept in a file of one JSON string per line."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
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
            with self._file.open("a", encoding="utf-8") as file:
                file.write("\n" * self._incomplete + json.dumps(item_id) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._incomplete = False
        self._ids.add(item_id)


def _is_complete(line: str) -> bool:
    try:
        return isinstance(json.loads(line), str)
    except ValueError:
        return False
