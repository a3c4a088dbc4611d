"""Values as JSON: their text, their file, and their hash."""

import json
import math
import numbers
from collections.abc import Mapping
from dataclasses import is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from bifocal.durable.files import write_text

MAX_SAFE = 2**53
"""Largest whole number of which browsers know the neighbors."""
KEPT = str, bool, type(None)
"""Classes whose values JSON has as they are."""


def plain(value: Any, *, safe: bool = False) -> Any:
    """Return a value as JSON has it: numbers that are not finite are None, times are texts.

    Args:
        safe: also return whole numbers above 2**53 as texts, which browsers would round.
    """
    # Builtin classes first: a look at an abstract one takes several times as long.
    if isinstance(value, KEPT):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(entry, safe=safe) for entry in value]
    if isinstance(value, dict):
        return {str(key): plain(entry, safe=safe) for key, entry in value.items()}
    if isinstance(value, (int, numbers.Integral)):
        whole = int(value)
        return str(whole) if safe and abs(whole) > MAX_SAFE else whole
    if isinstance(value, (float, numbers.Real)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return plain(dict(value), safe=safe)
    return plain(vars(value), safe=safe) if is_dataclass(value) else str(value)


def json_text(value: Any, *, safe: bool = False, **options: Any) -> str:
    """Return a value as JSON, see ``plain``; ``options`` are those of ``json.dumps``."""
    return json.dumps(plain(value, safe=safe), **{"ensure_ascii": False} | options)


def write_json(file: Path, value: Any) -> None:
    """Write a value as indented JSON, see ``plain``; a crash leaves the old file or the new one."""
    write_text(file, json_text(value, indent=2, sort_keys=True, ensure_ascii=True) + "\n")


def json_digest(value: Any) -> str:
    """Return the SHA-256 of a value as JSON; the order of its keys has no effect.

    It identifies artifacts, so the text is that of ``json.dumps``, not of ``json_text``.
    """
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
