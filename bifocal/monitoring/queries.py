"""User queries: from the search service's log, as collectors of logs keep it, or from a file with
sentences."""

import gzip
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from bifocal.onnx.files import parse_json

ROUTE = "/api/v1/search"
TIMES = ("time", "@timestamp", "timestamp", "date")
UNREAD, SHOWN = 3, 200
"""Unreadable lines in the error of a log, and their characters."""
GZIP = b"\x1f\x8b"
CRI = re.compile(r"\S+ (?:stdout|stderr) [FP]\S* (.*)", re.DOTALL)
WRAPPERS = ("log", "message", "msg", "MESSAGE", "log_processed")
"""Keys under which a collector keeps a line of a container, as text or as an object."""
LONGEST = 2**20
"""Characters of a line that a container runtime cut into parts."""
Entry = dict[str, Any]


def read_queries(files: Sequence[Path], since: datetime, until: datetime) -> list[str]:
    """Return the sentences that users searched for, in their order.

    A file with the suffix ``.txt`` has one sentence per line, without a time. Any other file is a
    log of the service, as it is or as collectors of logs keep it, see ``LogLines``: a repeated
    sentence counts once a day, because pages of results and reloads are requests too.

    Args:
        since, until: times of the first request, and after the last one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a log has searches of this time, and none with its sentence; or the logs have
            lines, and none is of the service.
    """
    sentences: list[str] = []
    found, unread, recognized = dict[tuple[str, str], None](), list[str](), 0
    for file in files:
        with open_log(file) as lines:
            if file.suffix == ".txt":
                sentences += filter(None, map(str.strip, lines))
            else:
                recognized += _read_log(file, lines, (since, until), found, unread)
    if unread and not recognized:
        shown = "; ".join(repr(line[:SHOWN]) for line in unread)
        raise ValueError(
            f"no line of {', '.join(map(str, files))} comes from the service: no JSON object "
            f"with the key 'event'. The first lines are {shown}"
        )
    return sentences + [text for _, text in found]


def _read_log(
    file: Path,
    lines: Iterable[str],
    period: tuple[datetime, datetime],
    found: dict[tuple[str, str], None],
    unread: list[str],
) -> int:
    """Add the sentences of a log to ``found``, and at most three unreadable lines to ``unread``;
    count the entries."""
    searches, logged, recognized, reader = 0, 0, 0, LogLines()
    for line in lines:
        entries = reader.entries(line)
        recognized += len(entries)
        if not entries and line.strip() and len(unread) < UNREAD:
            unread.append(line.strip())
        for entry in filter(_is_search, entries):
            time = _time(entry)
            if time is None or not period[0] <= time < period[1]:
                continue
            searches, logged = searches + 1, logged + ("text" in entry)
            text = " ".join((entry.get("text") or "").split())
            if text:
                found[time.astimezone(UTC).date().isoformat(), text] = None
    if searches and not logged:
        raise ValueError(
            f"{file} has {searches} searches without their sentences: start the service with "
            "--log-queries, or leave the log out"
        )
    return recognized


def _is_search(entry: Mapping[str, Any]) -> bool:
    expected = {"event": "request", "route": ROUTE, "status": 200}
    return all(entry.get(name) == value for name, value in expected.items())


def _time(entry: Mapping[str, Any]) -> datetime | None:
    """Return the time of an entry; collectors of logs may have moved it to another key, as
    seconds."""
    value = next((entry[key] for key in TIMES if key in entry), None)
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        time = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def open_log(file: Path) -> TextIO:
    """Open a log, compressed by gzip or not."""
    opened = file.open("rb")
    head = opened.read(2)
    opened.seek(0)
    stream = gzip.GzipFile(fileobj=opened) if head == GZIP else opened
    return io.TextIOWrapper(stream, encoding="utf-8", errors="replace")


class LogLines:
    """Finds the entries of the service in the lines of a log, also of lines that were cut into
    parts.

    Example:
        >>> LogLines().entries(
        ...     '2026-11-25T10:00:00.1Z stderr F {"event": "request", "status": 200}'
        ... )
        [{'event': 'request', 'status': 200}]
    """

    def __init__(self) -> None:
        self._part = ""

    def entries(self, line: str) -> list[Entry]:
        """Return the entries that end in a line; none for the first part of one, or for another
        program's line."""
        text, wrapped = _unwrap(line)
        found = _parse(text) or (_parse(self._part + text) if self._part else [])
        if found:
            self._part = ""
        elif wrapped:
            self._part = text if text.startswith("{") else (self._part + text)[-LONGEST:]
        return found


def _unwrap(line: str) -> tuple[str, bool]:
    """Return the text of a container in a line, and whether a runtime or a collector had wrapped
    it."""
    line = line.rstrip("\n")
    cri = CRI.fullmatch(line)
    if cri:
        return cri[1], True
    try:
        value = parse_json(line)
    except ValueError:
        return line, False
    texts = (
        [value[key] for key in WRAPPERS if isinstance(value.get(key), str)]
        if isinstance(value, dict)
        else []
    )
    if not texts or "event" in value:
        return line, False
    return _unwrap(texts[0])[0], True


def _parse(text: str) -> list[Entry]:
    """Return the entries in a text, which may begin with the name of a pod or a tag, and end with a
    bracket."""
    with suppress(ValueError, RecursionError):
        return _entries(json.loads(text))
    with suppress(ValueError, RecursionError):
        return _entries(json.JSONDecoder().raw_decode(text, text.index("{"))[0])
    return []


def _entries(value: Any) -> list[Entry]:
    if isinstance(value, list):
        return [entry for element in value for entry in _entries(element)]
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("event"), str):
        return [value]
    inner = (value[key] for key in WRAPPERS if key in value)
    return next(
        filter(None, (_parse(text) if isinstance(text, str) else _entries(text) for text in inner)),
        [],
    )
