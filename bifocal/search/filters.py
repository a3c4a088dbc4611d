"""Filters on the metadata of a collection, and groups of results with the same value."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.registry import suggest

PREFIX = "meta."
"""Prefix of the columns of metadata in ``items.parquet``."""
LIMITS = ("min", "max")
GROUP_DEPTH = 10_000
"""Results among which the best ones of each group are searched."""


def metadata_column(items: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the values (N,) of a metadata column."""
    if PREFIX + name not in items.column_names:
        known = [column.removeprefix(PREFIX) for column in items.column_names if column.startswith(PREFIX)]
        raise ValueError(f"the collection has no metadata {name!r}; {suggest(name, known)}")
    return items[PREFIX + name]


def matching_rows(items: pa.Table, where: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which items (N,) fulfill all conditions: a value, a list of values, or ``{"min": a, "max": b}``, one end
    optional. A day as the ``max`` of times includes all of the day.
    """
    mask = np.ones(len(items), dtype=bool)
    for name, condition in where.items():
        column = metadata_column(items, name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            fulfilled = _fulfilled(column, condition)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ValueError(
                f"condition {condition!r} does not fit the metadata {name!r} of type {column.type}: {error}"
            ) from error
        mask &= pc.fill_null(fulfilled, False).to_numpy(zero_copy_only=False).astype(bool)
    return mask


def _fulfilled(column: pa.ChunkedArray, condition: Any) -> pa.ChunkedArray:
    if isinstance(condition, Mapping):
        if not condition or not set(condition) <= set(LIMITS):
            raise TypeError(f"a range has the keys {' and '.join(LIMITS)}, got {', '.join(map(str, condition))}")
        parts = [
            compare(column, condition[key])
            for key, compare in (("min", _at_least), ("max", _at_most))
            if key in condition
        ]
        return parts[0] if len(parts) == 1 else pc.and_(*parts)
    if isinstance(condition, Sequence) and not isinstance(condition, str):
        values = [_scalar(value, column.type).as_py() for value in condition]
        return pc.is_in(column, value_set=pa.array(values, type=column.type))
    return pc.equal(column, _scalar(condition, column.type))


def _at_least(column: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    return pc.greater_equal(column, _scalar(value, column.type))


def _at_most(column: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    most = _scalar(value, column.type)
    if pa.types.is_timestamp(column.type) and isinstance(value, str) and len(value) == len("2024-12-31"):
        return pc.less(column, pc.add(most, pa.scalar(timedelta(days=1))))
    return pc.less_equal(column, most)


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Return a value of JSON as a value of the column; a text becomes a date or a time where the column has them."""
    if value is None:
        raise TypeError("null equals nothing: name a value")
    if isinstance(value, bool) != pa.types.is_boolean(type_):
        raise TypeError("true and false fit only a column of booleans")
    texts = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    if isinstance(value, str) != texts and not (isinstance(value, str) and pa.types.is_temporal(type_)):
        raise TypeError("a text fits only a column of texts, dates or times; a column of texts takes only texts")
    return pa.scalar(value).cast(type_)


def limit_groups(values: Iterable[Hashable], each: int) -> list[int]:
    """Return the positions of the first ``each`` results of each value; no value is a value too."""
    seen: Counter[Hashable] = Counter()
    kept = []
    for position, value in enumerate(values):
        seen[value] += 1
        if seen[value] <= each:
            kept.append(position)
    return kept
