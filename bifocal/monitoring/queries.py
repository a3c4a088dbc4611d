"""User queries: from the search service's log, or from a file with sentences."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bifocal.datasets.languages import SAMPLE, caption_languages
from bifocal.monitoring.log_lines import LogLines, open_log
from bifocal.monitoring.significance import Count
from bifocal.onnx.encoders import Embedder

ROUTE = "/api/v1/search"
TIMES = ("time", "@timestamp", "timestamp", "date")
UNREAD, SHOWN = 3, 200
"""Unreadable lines in the error of a log, and their characters."""
FREQUENT = 0.05
"""Smallest share of the reference's queries that makes a language expected."""


def read_queries(files: Sequence[Path], since: datetime, until: datetime) -> list[str]:
    """Return the sentences that users searched for, in their order.

    A file with the suffix ``.txt`` has one sentence per line, without a time. Any other file is a log of the service,
    as it is or as collectors of logs keep it, see ``bifocal.monitoring.log_lines``: a repeated sentence counts once a
    day, because pages of results and reloads are requests too.

    Args:
        since, until: times of the first request, and after the last one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a log has searches of this time, and none with its sentence; or the logs have lines, and none is of
            the service.
    """
    sentences: list[str] = []
    found, unread, recognized = dict[tuple[str, str], str](), list[str](), 0
    for file in files:
        with open_log(file) as lines:
            if file.suffix == ".txt":
                sentences += filter(None, map(str.strip, lines))
            else:
                recognized += _read_log(file, lines, (since, until), found, unread)
    if unread and not recognized:
        shown = "; ".join(repr(line[:SHOWN]) for line in unread)
        raise ValueError(
            f"no line of {', '.join(map(str, files))} comes from the service: no JSON object with the key 'event'. "
            f"The first lines are {shown}"
        )
    return sentences + list(found.values())


def _read_log(
    file: Path,
    lines: Iterable[str],
    period: tuple[datetime, datetime],
    found: dict[tuple[str, str], str],
    unread: list[str],
) -> int:
    """Add the sentences of a log to ``found``, and at most three unreadable lines to ``unread``; count the entries."""
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
                found.setdefault((time.astimezone(UTC).date().isoformat(), text), text)
    if searches and not logged:
        raise ValueError(
            f"{file} has {searches} searches without their sentences: start the service with --log-queries, or leave "
            "the log out"
        )
    return recognized


def _is_search(entry: Mapping[str, Any]) -> bool:
    expected = {"event": "request", "route": ROUTE, "status": 200}
    return all(entry.get(name) == value for name, value in expected.items())


def _time(entry: Mapping[str, Any]) -> datetime | None:
    """Return the time of an entry; collectors of logs may have moved it to another key, as seconds."""
    value = next((entry[key] for key in TIMES if key in entry), None)
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        time = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def sample(queries: Sequence[str], count: int, seed: int) -> list[str]:
    """Return at most ``count`` random queries."""
    rows = sorted(np.random.default_rng(seed).permutation(len(queries))[:count].tolist())
    return [queries[row] for row in rows]


def unknown_words(model: Embedder, queries: Sequence[str]) -> tuple[Count | None, list[str]]:
    """Count the queries with an unknown word, None if the model knows all words; return those with a known word."""
    known = model.sentences.known
    if known("") is None:
        return None, list(queries)
    words = [list((known(query) or {}).values()) for query in queries]
    unknown = Count(sum(not all(are_known) for are_known in words), len(queries))
    return unknown, [query for query, are_known in zip(queries, words, strict=True) if any(are_known)]


def query_languages(queries: Sequence[str], seed: int) -> dict[str, float]:
    """Return the share of queries by language, see ``caption_languages``; empty without langdetect or queries."""
    if not queries or find_spec("langdetect") is None:
        return {}
    return caption_languages([[query] for query in queries], seed)


def other_languages(shares: Mapping[str, float], queries: int, expected: Sequence[str]) -> Count | None:
    """Count sampled queries in an unexpected language, among queries with a guess; None if ``shares`` are unknown."""
    if not shares:
        return None
    total = min(queries, SAMPLE)
    return Count(round(total * sum(share for name, share in shares.items() if name not in expected)), total)


def expected_languages(shares: Mapping[str, float]) -> list[str]:
    """Return the languages of at least 5 % of the queries."""
    return [name for name, share in shares.items() if share >= FREQUENT]
