"""Results of which at most a few have the same value of a metadata column."""

from collections import Counter
from collections.abc import Hashable, Iterable

import pyarrow as pa

from bifocal.registry import suggest
from bifocal.search.filters import PREFIX

GROUP_DEPTH = 10_000
"""Results among which the best ones of each group are searched."""


def group_column(items: pa.Table, group: str) -> pa.ChunkedArray:
    """Return the values (N,) of a metadata column."""
    if PREFIX + group not in items.column_names:
        known = [name.removeprefix(PREFIX) for name in items.column_names if name.startswith(PREFIX)]
        raise ValueError(f"the collection has no metadata {group!r}; {suggest(group, known)}")
    return items[PREFIX + group]


def limit_groups(values: Iterable[Hashable], each: int) -> list[int]:
    """Return the positions of the first ``each`` results of each value; no value is a value too."""
    seen: Counter[Hashable] = Counter()
    kept = []
    for position, value in enumerate(values):
        seen[value] += 1
        if seen[value] <= each:
            kept.append(position)
    return kept
