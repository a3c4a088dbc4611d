"""The user's cache of exported graphs. Loads without torch."""

import os
from pathlib import Path


def cache_folder(name: str = "graphs") -> Path:
    """Return the folder ``name`` below the user's cache, which keeps exported graphs; it may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bifocal" / name
