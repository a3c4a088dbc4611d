"""Search by keywords in captions and metadata, and its fusion with the search by vectors."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.datasets.base import META
from bifocal.search.vectors import one_chunk

RANK_CONSTANT = 60
"""k of reciprocal rank fusion."""
FUSED = 1001
"""Results of each ranking that are fused: always the same number, so that pages are parts of one
order."""
K1, B = 1.5, 0.75
"""Parameters of BM25."""
BATCH = 65_536
"""Items whose texts are split at a time."""
SAMPLED = 32
"""Sampled scores for each wanted result."""


class Keywords:
    """BM25 over captions and metadata texts of N items, ignoring case (Robertson and Zaragoza,
    2009).

    The weight of a word in an item is idf tf / (tf + k1 (1 - b + b length / mean length)), and its
    idf is log(1 + (N - n + 0.5) / (n + 0.5)) for n items with the word, as in Lucene.

    Args:
        table: words in ascending order, with the items of each and the word's weights in them, see
            ``of``.
        count: N.
    """

    def __init__(self, table: pa.Table, count: int) -> None:
        self._table, self._count = table, count
        words, items, weights = (one_chunk(table[name]) for name in ("word", "items", "weights"))
        self._words: pa.Array = words
        self._starts: NDArray[Any] = np.from_dlpack(items.offsets)
        self._items: NDArray[Any] = np.from_dlpack(items.values)
        self._weights: NDArray[Any] = np.from_dlpack(weights.values)

    @classmethod
    def of(cls, items: pa.Table) -> "Keywords":
        """Return the keywords of the captions and texts of items."""
        words, rows, count = [], [], len(items)
        for start in range(0, count, BATCH):
            some, row = _words(_texts(items.slice(start, BATCH)))
            words.append(some)
            rows.append(row + start)
        encoded = pa.chunked_array(words, pa.string()).dictionary_encode().combine_chunks()
        item = np.concatenate([np.zeros(0, np.int64), *rows])
        lengths = np.bincount(item, minlength=count)
        order: NDArray[Any] = np.from_dlpack(pc.sort_indices(encoded.dictionary))
        codes = np.argsort(order)[np.from_dlpack(encoded.indices)]
        pairs, frequency = np.unique(codes * count + item, return_counts=True)
        code, item = np.divmod(pairs, max(count, 1))
        starts = np.searchsorted(code, np.arange(len(order) + 1))
        found = np.diff(starts)
        idf = np.log(1 + (count - found + 0.5) / (found + 0.5))
        norm = K1 * (1 - B + B * lengths[item] / lengths.mean()) if len(item) else np.zeros(0)
        weights = np.repeat(idf, found) * frequency / (frequency + norm)
        columns = {
            "word": encoded.dictionary.take(pa.array(order)),
            "items": pa.LargeListArray.from_arrays(starts, item.astype(np.int32)),
            "weights": pa.LargeListArray.from_arrays(starts, weights.astype(np.float32)),
        }
        return cls(pa.table(columns), count)

    @classmethod
    def open(cls, file: Path, count: int) -> "Keywords":
        """Map the file of ``write`` for N items."""
        return cls(pa.ipc.open_file(pa.memory_map(str(file))).read_all(), count)

    def write(self, file: Path) -> None:
        """Write the words with their items to a file of Arrow."""
        with pa.ipc.new_file(str(file), self._table.schema) as writer:
            writer.write_table(self._table)

    def search(
        self, query: str, count: int, allowed: NDArray[Any] | None = None
    ) -> NDArray[np.int64]:
        """Return at most ``count`` rows that share a word with a query, best first; equal scores by
        their row."""
        scores = np.zeros(self._count, dtype=np.float32)
        # Arrow compiles its expression in every call, which takes a millisecond.
        for word in re.findall(r"\w+", pc.utf8_lower(query).as_py()):
            code = bisect_left(
                range(len(self._words)), word, key=lambda row: self._words[row].as_py()
            )
            if code < len(self._words) and self._words[code].as_py() == word:
                span = slice(self._starts[code], self._starts[code + 1])
                np.add.at(scores, self._items[span], self._weights[span])  # takes less time than +=
        rows = np.flatnonzero(scores > 0 if allowed is None else (scores > 0) & allowed)
        # The best of a sample bound the best of all, and cost less to find.
        for step in (len(rows) // (SAMPLED * count), 1):
            if step and len(sample := scores[rows[::step]]) > count:
                rows = rows[scores[rows] >= np.partition(sample, -count)[-count]]
        return rows[np.argsort(-scores[rows], kind="stable")[:count]]


def fuse(rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """Return the sum of 1 / (60 + rank) of each row, best first, ties by row (Cormack et al., SIGIR
    2009)."""
    sums: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking, start=1):
            sums[row] = sums.get(row, 0.0) + 1 / (RANK_CONSTANT + rank)
    return dict(sorted(sums.items(), key=lambda entry: (-entry[1], entry[0])))


def has_texts(items: pa.Table) -> bool:
    """Return whether an item has a caption or a text among its metadata."""
    if (
        "captions" in items.column_names
        and (pc.sum(pc.list_value_length(items["captions"])).as_py() or 0) > 0
    ):
        return True
    columns = [column for column in items.schema if column.name.startswith(META)]
    return any(pa.types.is_string(column.type) for column in columns)


def _texts(items: pa.Table) -> pa.Array:
    """Return the captions and texts of each item as one text."""
    parts = [pa.repeat("", len(items))]
    for name in items.column_names:
        column = items[name].combine_chunks()
        if name == "captions":
            parts.append(pc.binary_join(column, " "))
        elif name.startswith(META) and pa.types.is_string(column.type):
            parts.append(column)
    return pc.binary_join_element_wise(*parts, " ", null_handling="skip")


def _words(texts: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the words of texts in lower case, made of letters, digits and underscores, and the
    text of each."""
    lists = pc.split_pattern_regex(pc.utf8_lower(texts), r"[^\p{L}\p{N}_]+")
    words, text = lists.flatten(), pc.list_parent_indices(lists)
    kept = pc.not_equal(words, "")
    rows: NDArray[Any] = np.from_dlpack(text.filter(kept))
    return words.filter(kept), rows
