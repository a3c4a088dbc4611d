"""Filters on the metadata of a collection, and groups of results with the same value."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.datasets.base import META
from bifocal.registry import suggest

LIMITS = ("min", "max")
_NUMBER = re.compile(r"\s*[-+]?\d[\d.,]*\s*")
_TIME = re.compile(
    r"\d{4}(-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?)?)?", re.ASCII
)
_ZONE = re.compile(r"(Z|[+-]\d\d:\d\d)$")
GROUP_DEPTH = 10_000
"""Results among which the best ones of each group are searched."""


def metadata_column(items: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the values (N,) of a metadata column."""
    if META + name not in items.column_names:
        known = [
            column.removeprefix(META) for column in items.column_names if column.startswith(META)
        ]
        raise ValueError(f"the collection has no metadata {name!r}; {suggest(name, known)}")
    return items[META + name]


def matching_rows(items: pa.Table, where: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which items (N,) fulfill all conditions: a value, a list of values, or
    ``{"min": a, "max": b}``, one end optional. A year, a month or a day means all of its times.
    """
    mask = np.ones(len(items), dtype=bool)
    for name, condition in where.items():
        column = metadata_column(items, name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            fulfilled = _fulfilled(column, condition)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"condition {condition!r} does not fit the metadata {name!r} of type "
                f"{column.type}: {error}"
            ) from error
        mask &= pc.fill_null(fulfilled, False).to_numpy(zero_copy_only=False).astype(bool)
    return mask


def _fulfilled(column: pa.ChunkedArray, condition: Any) -> pa.ChunkedArray:
    has_times = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
    if has_times:
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        column = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.timestamp("us"))
    if isinstance(condition, Mapping):
        if not condition or not set(condition) <= set(LIMITS):
            raise TypeError(
                f"a range has the keys {' and '.join(LIMITS)}, got {', '.join(map(str, condition))}"
            )
        limits = {key: _limit(value, column.type) for key, value in condition.items()}
        return _between(column, limits.get("min"), limits.get("max"))
    if not isinstance(condition, Sequence) or isinstance(condition, str):
        condition = [condition]
    if has_times:
        days = [_between(column, *[_limit(value, column.type)] * 2) for value in condition]
        return reduce(pc.or_, days, pa.chunked_array([np.zeros(len(column), bool)]))
    values = [_scalar(value, column.type).cast(column.type).as_py() for value in condition]
    return pc.is_in(column, value_set=pa.array(values, type=column.type))


def _between(column: pa.ChunkedArray, low: Any, high: Any) -> pa.ChunkedArray:
    """Return which values are in a range; a limit of times is a period, the others are values."""
    parts = []
    if low is not None:
        parts.append(pc.greater_equal(column, low[0] if isinstance(low, tuple) else low))
    if high is not None:
        parts.append(
            pc.less(column, high[1]) if isinstance(high, tuple) else pc.less_equal(column, high)
        )
    return reduce(pc.and_, parts)


def _limit(value: Any, type_: pa.DataType) -> Any:
    """Return a limit of a range; for times, the start and the exclusive end of a year, a month, a
    day or a moment."""
    if not pa.types.is_timestamp(type_):
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            raise TypeError(
                f"a range of texts compares letters, so {value!r} is no limit: name the values "
                "in a list"
            )
        limit = _scalar(value, type_)
        return (
            limit.cast(type_) if pa.types.is_floating(type_) else limit
        )  # a whole number is compared with a fraction
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise TypeError(
            'a date is a text, such as "2020-05-31", "2020-05" or "2020-05-31 18:00"; a year '
            'is "2020"'
        )
    if value[10:] and _ZONE.search(value):
        value = datetime.fromisoformat(value).astimezone(UTC).replace(tzinfo=None).isoformat()
    start = np.datetime64(value)
    is_period = np.datetime_data(start.dtype)[0] in ("Y", "M", "D")
    moments = start, start + 1 if is_period else start.astype("datetime64[us]") + 1
    return tuple(pa.scalar(moment.astype("datetime64[us]")) for moment in moments)


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Return a value of JSON, whose type must be that of the column: nothing is converted."""
    if value is None:
        raise TypeError("null equals nothing: name a value")
    if isinstance(value, bool) != pa.types.is_boolean(type_):
        raise TypeError("true and false fit only a column of booleans")
    has_texts = (
        not pa.types.is_integer(type_)
        and not pa.types.is_floating(type_)
        and not pa.types.is_boolean(type_)
    )
    if isinstance(value, str) != has_texts:
        example = '"10"' if has_texts else "10"
        raise TypeError(
            f"the column has {'texts' if has_texts else 'numbers'}, such as {example}, not "
            f"{value!r}"
        )
    return pa.scalar(value)


def limit_groups(values: Iterable[Hashable], each: int) -> list[int]:
    """Return the positions of the first ``each`` results of each value; no value is a value too."""
    seen: Counter[Hashable] = Counter()
    kept = []
    for position, value in enumerate(values):
        seen[value] += 1
        if seen[value] <= each:
            kept.append(position)
    return kept
