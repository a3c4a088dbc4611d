"""Lines of the service's log as collectors of logs keep them: gzip, CRI, Docker, Fluent Bit, JSON lines or arrays."""

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any, TextIO

GZIP = b"\x1f\x8b"
CRI = re.compile(r"\S+ (?:stdout|stderr) [FP]\S* (.*)", re.DOTALL)
WRAPPERS = ("log", "message", "msg", "MESSAGE", "log_processed")
"""Keys under which a collector keeps a line of a container, as text or as an object."""
LONGEST = 2**20
"""Characters of a line that a container runtime cut into parts."""
Entry = dict[str, Any]


def open_log(file: Path) -> TextIO:
    """Open a log, compressed by gzip or not."""
    opened = file.open("rb")
    head = opened.read(2)
    opened.seek(0)
    stream = gzip.GzipFile(fileobj=opened) if head == GZIP else opened
    return io.TextIOWrapper(stream, encoding="utf-8", errors="replace")


class LogLines:
    """Finds the entries of the service in the lines of a log, also of lines that were cut into parts.

    Example:
        >>> LogLines().entries('2026-11-25T10:00:00.1Z stderr F {"event": "request", "status": 200}')
        [{'event': 'request', 'status': 200}]
    """

    def __init__(self) -> None:
        self._part = ""

    def entries(self, line: str) -> list[Entry]:
        """Return the entries that end in a line; none for the first part of one, or for another program's line."""
        text, wrapped = _unwrap(line)
        found = _parse(text) or (_parse(self._part + text) if self._part else [])
        if found:
            self._part = ""
        elif wrapped:
            self._part = text if text.startswith("{") else (self._part + text)[-LONGEST:]
        return found


def _unwrap(line: str) -> tuple[str, bool]:
    """Return the text of a container in a line, and whether a runtime or a collector had wrapped it."""
    line = line.rstrip("\n")
    cri = CRI.fullmatch(line)
    if cri:
        return cri[1], True
    try:
        value = json.loads(line)
    except ValueError:
        return line, False
    texts = [value[key] for key in WRAPPERS if isinstance(value.get(key), str)] if isinstance(value, dict) else []
    if not texts or "event" in value:
        return line, False
    return _unwrap(texts[0])[0], True


def _parse(text: str) -> list[Entry]:
    """Return the entries in a text, which may begin with the name of a pod or a tag, and end with a bracket."""
    try:
        return _entries(json.loads(text))
    except ValueError:
        pass
    try:
        return _entries(json.JSONDecoder().raw_decode(text, text.index("{"))[0])
    except ValueError:
        return []


def _entries(value: Any) -> list[Entry]:
    if isinstance(value, list):
        return [entry for element in value for entry in _entries(element)]
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("event"), str):
        return [value]
    inner = (value[key] for key in WRAPPERS if key in value)
    return next(filter(None, (_parse(text) if isinstance(text, str) else _entries(text) for text in inner)), [])
