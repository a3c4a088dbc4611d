"""Files that were cut or changed on the disk: one error that names the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def read_whole(file: Path, read: Callable[[Path], T]) -> T:
    """Return ``read(file)``; ``ValueError`` with the name of a file that cannot be read."""
    try:
        return read(file)
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy, Arrow, faiss and JSON have classes of their own
        reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise ValueError(f"{file} is damaged ({reason}): copy it again, or run the command that writes it") from error


def read_json(file: Path) -> Any:
    """Return the content of a JSON file."""
    return read_whole(file, lambda path: json.loads(path.read_text(encoding="utf-8")))
