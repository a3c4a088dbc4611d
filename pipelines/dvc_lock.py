"""DVC's table of the files that its processes read and write."""

import json
import time
from pathlib import Path

TABLE = Path(".dvc", "tmp", "rwlock")
PATIENCE = 0.5
"""Seconds after which no process is still writing an unreadable table."""


def remove_damaged_table(root: Path) -> bool:
    """Remove the table below ``root`` if it cannot be read, and return whether it was removed.

    A killed DVC leaves its table empty or cut off, and every later command fails. A readable table is kept: DVC itself
    removes the entries of processes that have ended.
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
    try:
        json.loads(table.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except ValueError:  # not JSON, or not UTF-8
        return False
    return True
