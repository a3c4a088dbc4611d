"""Search by keywords in captions and metadata, and its fusion with the search by vectors."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.search.filters import PREFIX

RANK_CONSTANT = 60
"""k of reciprocal rank fusion."""
FUSED = 1001
"""Results of each ranking that are fused: always the same number, so that pages are parts of one order."""


class Keywords:
    """BM25 over captions and metadata texts of N items, ignoring case (Robertson and Zaragoza, 2009; package bm25s)."""

    def __init__(self, items: pa.Table) -> None:
        try:
            import bm25s
        except ImportError as error:
            raise ImportError("search by keywords needs bm25s: pip install 'bifocal-vse[search]'") from error
        self._words = [_words(" ".join(texts)) for texts in zip(*_text_columns(items), strict=True)]
        self._known = {word for words in self._words for word in words}
        self._count = len(items)
        if self._known:
            self._bm25 = bm25s.BM25()
            self._bm25.index(self._words, show_progress=False)

    def search(self, query: str, count: int, allowed: NDArray[Any] | None = None) -> NDArray[np.int64]:
        """Return at most ``count`` rows that share a word with a query, best first; equal scores by their row."""
        words = [word for word in _words(query) if word in self._known]
        if not words:
            return np.zeros(0, dtype=np.int64)
        scores = self._bm25.get_scores(words)[: self._count]
        scores = scores if allowed is None else np.where(allowed, scores, 0)
        order = np.argsort(-scores, kind="stable")[:count]
        return order[scores[order] > 0]


def fuse(rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """Return the sum of 1 / (60 + rank) of each row, best first, ties by row (Cormack et al., SIGIR 2009)."""
    sums: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking, start=1):
            sums[row] = sums.get(row, 0.0) + 1 / (RANK_CONSTANT + rank)
    return dict(sorted(sums.items(), key=lambda entry: (-entry[1], entry[0])))


def has_texts(items: pa.Table) -> bool:
    """Return whether an item has a caption or a text among its metadata."""
    if "captions" in items.column_names and (pc.sum(pc.list_value_length(items["captions"])).as_py() or 0) > 0:
        return True
    columns = [column for column in items.schema if column.name.startswith(PREFIX)]
    return any(pa.types.is_string(column.type) for column in columns)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _text_columns(items: pa.Table) -> list[list[str]]:
    columns = [[""] * len(items)]
    if "captions" in items.column_names:
        columns.append([" ".join(texts or []) for texts in items["captions"].to_pylist()])
    for name in items.column_names:
        if name.startswith(PREFIX) and pa.types.is_string(items[name].type):
            columns.append([text or "" for text in items[name].to_pylist()])
    return columns
