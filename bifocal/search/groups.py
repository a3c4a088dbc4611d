"""Results of which at most a few have the same value of a metadata column."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from bifocal.registry import suggest
from bifocal.search.filters import PREFIX
from bifocal.search.hits import SearchHit

Ranking = Callable[[int], list[SearchHit]]
"""The first n results of a search, best first."""


def group_column(items: pa.Table, group: str) -> pa.ChunkedArray:
    """Return the values (N,) of a metadata column.

    Args:
        items: table with the metadata in columns ``meta.<name>``.

    Raises:
        ValueError: there is no such metadata.
    """
    if PREFIX + group not in items.column_names:
        known = [name.removeprefix(PREFIX) for name in items.column_names if name.startswith(PREFIX)]
        raise ValueError(f"the collection has no metadata {group!r}; {suggest(group, known)}")
    return items[PREFIX + group]


def limit_groups(ranking: Ranking, groups: pa.ChunkedArray, each: int, count: int) -> list[SearchHit]:
    """Return the first ``count`` results of which at most ``each`` have the same value; no value is a value too.

    Args:
        ranking: is asked for more results until there are enough, or no more.
        groups: (N,) value of each row of the index.

    Example:
        >>> hits = [SearchHit(row, str(row), 1.0 - row) for row in range(4)]
        >>> [hit.row for hit in limit_groups(lambda n: hits[:n], pa.chunked_array([["x", "x", "y", "x"]]), 1, 2)]
        [0, 2]
    """
    asked = 4 * count
    while True:
        hits = ranking(asked)
        seen: Counter[Any] = Counter()
        kept = []
        for hit in hits:
            value = groups[hit.row].as_py()
            seen[value] += 1
            if seen[value] <= each:
                kept.append(hit)
        if len(kept) >= count or len(hits) < asked:
            return kept[:count]
        asked *= 4
