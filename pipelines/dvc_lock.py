"""DVC's table of the files that its processes read and write."""

import json
import time
from pathlib import Path

TABLE = Path(".dvc", "tmp", "rwlock")
PATIENCE = 0.5
"""Seconds after which a table that cannot be read is no longer one that a process is writing."""


def remove_damaged_table(root: Path) -> bool:
    """Remove the table of a repository if it cannot be read, and return whether it was removed.

    DVC writes the table in place. If it is killed meanwhile, the table is empty or cut off, and every later command
    fails. A table that can be read is kept: DVC itself removes the entries of processes that have ended.

    Args:
        root: folder with ``.dvc``.
    """
    table = root / TABLE
    if _is_readable(table):
        return False
    time.sleep(PATIENCE)
    if _is_readable(table):
        return False
    table.unlink(missing_ok=True)
    return True


def _is_readable(table: Path) -> bool:
    """Return whether a table is JSON, or missing."""
    try:
        json.loads(table.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except ValueError:  # not JSON, or not UTF-8
        return False
    return True
