"""Search by keywords in captions and metadata, and its fusion with the search by vectors."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.datasets.base import META
from bifocal.onnx.text.captions import parts, spaced, tokenize
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
MAX_TERMS = 8192
"""Different words of a query, with their parts: each takes 20 microseconds to find."""
SAMPLED = 32
"""Sampled scores for each wanted result."""


class Keywords:
    """BM25 over captions and metadata of N items (Robertson and Zaragoza, 2009).

    Words are those of ``bifocal.onnx.text.captions``, with their parts. The weight of a word in an
    item is idf tf / (tf + k1 (1 - b + b length / mean length)), and its idf is
    log(1 + (N - n + 0.5) / (n + 0.5)) for n items with the word, as in Lucene.

    Args:
        table: words in ascending order, with the items of each and the word's weights in them, see
            ``of``.
        count: N.
    """

    def __init__(self, table: pa.Table, count: int) -> None:
        self._table, self._count = table, count
        self._last: tuple[str | None, list[tuple[slice, int]]] = None, []
        words, items, weights = (one_chunk(table[name]) for name in ("word", "items", "weights"))
        self._words: pa.Array = words
        self._starts: NDArray[Any] = np.from_dlpack(items.offsets)
        self._items: NDArray[Any] = np.from_dlpack(items.values)
        self._weights: NDArray[Any] = np.from_dlpack(weights.values)
        self._ends: NDArray[Any] = np.from_dlpack(weights.offsets)

    @classmethod
    def of(cls, items: pa.Table) -> "Keywords":
        """Return the keywords of the captions and values of items."""
        count = len(items)
        batches = [
            (start, *found)
            for start in range(0, count, BATCH)
            for found in _words(_texts(items.slice(start, BATCH)))
        ]
        encoded = pa.chunked_array([words for _, words, _ in batches], pa.string())
        encoded = encoded.dictionary_encode().combine_chunks()
        item = np.concatenate([np.zeros(0, np.int64), *(start + row for start, _, row in batches)])
        words, codes, item = _with_parts(
            encoded.dictionary.to_pylist(), np.from_dlpack(encoded.indices), item
        )
        lengths = np.bincount(item, minlength=count)
        order: NDArray[Any] = np.from_dlpack(pc.sort_indices(words))
        pairs, frequency = np.unique(np.argsort(order)[codes] * count + item, return_counts=True)
        code, item = np.divmod(pairs, max(count, 1))
        starts = np.searchsorted(code, np.arange(len(order) + 1))
        found = np.diff(starts)
        idf = np.log(1 + (count - found + 0.5) / (found + 0.5))
        norm = K1 * (1 - B + B * lengths[item] / lengths.mean()) if len(item) else np.zeros(0)
        weights = np.repeat(idf, found) * frequency / (frequency + norm)
        columns = {
            "word": words.take(pa.array(order)),
            "items": pa.LargeListArray.from_arrays(starts, item.astype(np.int32)),
            "weights": pa.LargeListArray.from_arrays(starts, weights.astype(np.float32)),
        }
        return cls(pa.table(columns), count)

    @classmethod
    def open(cls, file: Path, count: int) -> "Keywords":
        """Map the file of ``write`` for N items."""
        return cls(pa.ipc.open_file(pa.memory_map(str(file))).read_all(), count)

    def check(self) -> None:
        """Raise ``ValueError`` unless the table is one that ``of`` makes for N items."""
        words, items, weights = self._words, self._items, self._weights
        whole = np.array_equal(self._starts, self._ends) and len(self._starts) == len(words) + 1
        if (
            any(column.null_count for column in self._table.columns)
            or not whole
            or (np.diff(self._starts) < 0).any()
            or not 0 == self._starts[0] <= self._starts[-1] == len(items) == len(weights)
            or not 0 <= items.min(initial=0) <= items.max(initial=0) < max(self._count, 1)
            or not np.isfinite(weights).all()
            or pc.any(pc.greater_equal(words[:-1], words[1:])).as_py()
        ):
            raise ValueError("the keywords of the index do not fit its items: build it again")

    def write(self, file: Path) -> None:
        """Write the words with their items to a file of Arrow."""
        with pa.ipc.new_file(str(file), self._table.schema) as writer:
            writer.write_table(self._table)

    def postings(self, query: str) -> list[tuple[slice, int]]:
        """Return the places of the items of each word of a query, and how often it has the word.

        Raises:
            ValueError: the query has more than ``MAX_TERMS`` different words and parts.
        """
        last = self._last
        if last[0] == query:  # it is priced, and then searched
            return last[1]
        often: Counter[str] = Counter()
        for word, count in Counter(tokenize(query)).items():
            often.update(dict.fromkeys(terms([word]), count))
        if len(often) > MAX_TERMS:
            raise ValueError(
                f"the query has {len(often)} different words and parts of words, at most "
                f"{MAX_TERMS} are searched: shorten it"
            )
        found = []
        for word, count in often.items():
            code = bisect_left(
                range(len(self._words)), word, key=lambda row: self._words[row].as_py()
            )
            if code < len(self._words) and self._words[code].as_py() == word:
                found.append((slice(self._starts[code], self._starts[code + 1]), count))
        self._last = query, found
        return found

    def search(
        self, query: str, count: int, allowed: NDArray[Any] | None = None
    ) -> NDArray[np.int64]:
        """Return at most ``count`` rows that share a word with a query, best first; equal scores by
        their row."""
        scores = np.zeros(self._count, dtype=np.float32)
        for span, often in self.postings(query):
            # Takes less time than +=.
            np.add.at(scores, self._items[span], self._weights[span] * np.float32(often))
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


def terms(words: Iterable[str]) -> Iterator[str]:
    """Yield words with their parts."""
    for word in words:
        yield word
        yield from parts(word)


def has_texts(items: pa.Table) -> bool:
    """Return whether an item has a caption, or a value that is a word."""
    if (
        "captions" in items.column_names
        and (pc.sum(pc.list_value_length(items["captions"])).as_py() or 0) > 0
    ):
        return True
    columns = [items[name] for name in items.column_names if name.startswith(META)]
    return any(
        column.null_count < len(column) and _as_texts(column[:0]) is not None for column in columns
    )


def _as_texts(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return texts, numbers and days as texts; None for values of other types."""
    kind, types = column.type, pa.types
    if types.is_timestamp(kind):
        column = pc.local_timestamp(column) if kind.tz else column
        return column.cast(pa.date32(), safe=False).cast(pa.string())
    if types.is_floating(kind):
        column = pc.if_else(pc.is_finite(column), column, None)
    is_word = (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_date(kind)
        or (types.is_dictionary(kind) and types.is_string(kind.value_type))
    )
    return column.cast(pa.string()) if is_word else None


def _texts(items: pa.Table) -> pa.Array:
    """Return the captions and values of each item as one text."""
    found = [pa.repeat("", len(items))]
    for name in items.column_names:
        column = items[name]
        if name == "captions":
            found.append(pc.binary_join(column.combine_chunks(), " "))
        elif name.startswith(META) and (texts := _as_texts(column)) is not None:
            found.append(texts.combine_chunks())
    return pc.binary_join_element_wise(*found, " ", null_handling="skip")


def _words(texts: pa.Array) -> Iterator[tuple[pa.Array, NDArray[np.int64]]]:
    """Yield the words of texts, and the text of each."""
    is_ascii = pc.string_is_ascii(texts)
    for group in (is_ascii, pc.invert(is_ascii)):  # the first needs a tenth of the time
        rows: NDArray[Any] = np.from_dlpack(pc.indices_nonzero(group))
        if not len(rows):
            continue
        lines = pc.replace_substring(texts.filter(group), "\n", " ").to_pylist()
        lists = pc.ascii_split_whitespace(pa.array(spaced("\n".join(lines)).split("\n")))
        words, text = lists.flatten(), pc.list_parent_indices(lists)
        kept = pc.not_equal(words, "")
        yield words.filter(kept), rows[np.from_dlpack(text.filter(kept))].astype(np.int64)


def _with_parts(
    words: list[str], codes: NDArray[Any], items: NDArray[np.int64]
) -> tuple[pa.Array, NDArray[Any], NDArray[np.int64]]:
    """Return different words with their parts, and the word and the item of each word of a text."""
    known = {word: code for code, word in enumerate(words)}
    pairs = [(code, part) for code, word in enumerate(words) for part in parts(word)]
    part = np.array([known.setdefault(name, len(known)) for _, name in pairs], np.int64)
    starts = np.searchsorted(
        np.array([code for code, _ in pairs], np.int64), np.arange(len(words) + 1)
    )
    number = np.diff(starts)[codes]
    # Places of the parts of each word of a text: its start, and the numbers from 0.
    places = np.arange(number.sum()) + np.repeat(starts[codes] - np.cumsum(number) + number, number)
    return (
        pa.array(list(known), pa.string()),
        np.concatenate([codes, part[places]]),
        np.concatenate([items, np.repeat(items, number)]),
    )
