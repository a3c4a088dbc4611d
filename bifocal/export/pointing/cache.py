"""Cache of exported graphs of pointing heads, below the user's cache."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bifocal.export.cache import cache_folder
from bifocal.export.process import run_in_fresh_process

FORMAT = 2
"""Number of this export in the names of the cached graphs."""


def export_once(key: Sequence[Any], file: Path, export: Callable[..., None], *arguments: Any) -> None:
    """Write a graph in a fresh process, or copy it from the user's cache, which keeps it by ``key``."""
    content = json.dumps([FORMAT, torch.__version__, file.name, *key], sort_keys=True, default=list)
    kept = cache_folder() / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}-{file.name}"
    if not kept.is_file():
        run_in_fresh_process(export, *arguments, file)
        with contextlib.suppress(OSError):  # without a writable cache, the next export takes the same time
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.with_name(f"{kept.name}.{os.getpid()}")
            shutil.copyfile(file, partial)
            partial.replace(kept)
    else:
        shutil.copyfile(kept, file)


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
