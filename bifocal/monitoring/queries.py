"""User queries: from the search service's log, or from a file with sentences."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bifocal.inspection.languages import SAMPLE, caption_languages
from bifocal.monitoring.significance import Count
from bifocal.text.bag_of_words import TERMS, BagOfWords
from bifocal.text.tokens import tokenize
from bifocal.text.vocabulary import Vocabulary

ROUTE = "/api/v1/search"
FREQUENT = 0.05
"""Smallest share of the reference's queries that makes a language expected."""


def read_queries(files: Sequence[Path], since: datetime, until: datetime) -> list[str]:
    """Return the sentences that users searched for, in their order.

    A file with the suffix ``.txt`` has one sentence per line, without a time. Any other file is a log of the service:
    a repeated sentence counts once a day, because pages of results and reloads are requests too.

    Args:
        since, until: times of the first request, and after the last one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a log has searches of this time, and none with its sentence.
    """
    found: list[str] = []
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as lines:
            if file.suffix == ".txt":
                found += filter(None, map(str.strip, lines))
            else:
                found += _logged(file, lines, since, until)
    return found


def _logged(file: Path, lines: Iterable[str], since: datetime, until: datetime) -> list[str]:
    searches, logged, found = 0, 0, dict[tuple[str, str], str]()
    for line in lines:
        entry = _request(line)
        if entry is None or not since <= (time := datetime.fromisoformat(entry["time"])) < until:
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
    return list(found.values())


def _request(line: str) -> dict[str, Any] | None:
    """Return the entry of an answered search; None for another line."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    expected = {"event": "request", "route": ROUTE, "status": 200}
    if not isinstance(entry, dict) or any(entry.get(name) != value for name, value in expected.items()):
        return None
    return entry


def sample(queries: Sequence[str], count: int, seed: int) -> list[str]:
    """Return at most ``count`` random queries."""
    rows = sorted(np.random.default_rng(seed).permutation(len(queries))[:count].tolist())
    return [queries[row] for row in rows]


class KnownWords:
    """Words that an exported model has learned; a model of subwords or characters has no ``vocabulary``."""

    def __init__(self, onnx: Path) -> None:
        self.vocabulary: Vocabulary | BagOfWords | None = None
        vocabularies, terms = sorted(onnx.rglob(Vocabulary.FILE)), sorted(onnx.rglob(TERMS))
        if vocabularies:
            self.vocabulary = Vocabulary.load(vocabularies[0])
        elif terms:
            self.vocabulary = BagOfWords.load(terms[0].parent)

    def count(self, queries: Sequence[str]) -> Count | None:
        """Return how many queries have an unknown word; None if every word is known."""
        if self.vocabulary is None:
            return None
        return Count(sum(self._has_unknown(query) for query in queries), len(queries))

    def _has_unknown(self, query: str) -> bool:
        if isinstance(self.vocabulary, BagOfWords):
            return self.vocabulary.encode(query)[3] > 0
        return any(word not in (self.vocabulary or ()) for word in tokenize(query))


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
