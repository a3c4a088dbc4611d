"""Filters on the metadata of a collection, and groups of results with the same value."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import reduce
from math import ceil, floor, isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.datasets.base import META
from bifocal.onnx.files import parse_json
from bifocal.registry import suggest

LIMITS = ("min", "max")
_SORTED = re.compile(
    r"0+|0000-00(-00)?([T ]00:00(:00(\.0+)?)?)?|00:00(:00)?|[^\W\d_]+[ _-]?0+|[$€£¥]?0+\.0+"
)
"""Shapes of texts, their digits as zeros, that sort as their values if all have the same shape."""
_TIME = re.compile(
    r"\d{4}(-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?)?)?", re.ASCII
)
_ZONE = re.compile(r"(Z|[+-]\d\d:\d\d)$")
_LARGE = re.compile(r"-?[1-9]\d{15,18}", re.ASCII)
"""A whole number that may be above 2**53."""
EXAMPLES = 1000
"""Texts of which one is named that does not sort as its value."""
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


def parse_conditions(where: str) -> dict[str, Any]:
    """Return the conditions of ``matching_rows`` in a JSON text."""
    with suppress(ValueError):
        conditions = parse_json(where)
        if isinstance(conditions, dict):
            return conditions
    raise ValueError(f'where is {where[:80]!r}, expected JSON such as {{"year": {{"min": 2000}}}}')


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
    types, zone = pa.types, None
    if types.is_null(column.type):
        return pc.is_valid(column)
    if types.is_timestamp(column.type) or types.is_date(column.type):
        zone = column.type.tz if types.is_timestamp(column.type) else None
        column = column if zone is None else pc.local_timestamp(column)
        column = column.cast(pa.timestamp("us"), safe=False)
    if isinstance(condition, Mapping):
        return _in_range(column, condition, zone)
    if not isinstance(condition, Sequence) or isinstance(condition, str):
        condition = [condition]
    if types.is_timestamp(column.type):
        return pa.array(_in_periods(column, [_period(value, zone) for value in condition]))
    values = [_value(value, column.type) for value in condition]
    if types.is_integer(column.type):
        values = [
            int(value) for value in values if -(2**63) <= value < 2**63 and value == int(value)
        ]
    return pc.is_in(column, value_set=pa.array(values, column.type))


def _in_periods(
    column: pa.ChunkedArray, periods: Sequence[tuple[pa.Scalar, pa.Scalar]]
) -> NDArray[np.bool_]:
    """Return which times are in a period: in the last to start before them, or in one that ends
    later."""
    ordered = sorted((start.value, end.value) for start, end in periods)
    limits = np.array(ordered, np.int64).reshape(-1, 2)
    nothing = np.iinfo(np.int64).min
    ends = np.maximum.accumulate(np.append(nothing, limits[:, 1]))
    times = pc.fill_null(column.cast(pa.int64()), nothing).to_numpy()
    found: NDArray[np.bool_] = times < ends[np.searchsorted(limits[:, 0], times, side="right")]
    return found


def _in_range(
    column: pa.ChunkedArray, limits: Mapping[str, Any], zone: str | None
) -> pa.ChunkedArray:
    if not limits or not set(limits) <= set(LIMITS):
        raise TypeError(
            f"a range has the keys {' and '.join(LIMITS)}, got {', '.join(map(str, limits))}"
        )
    parts = []
    for key, given in limits.items():
        compare = pc.greater_equal if key == "min" else pc.less_equal
        if pa.types.is_timestamp(column.type):
            start, end = _period(given, zone)
            parts.append(compare(column, start) if key == "min" else pc.less(column, end))
            continue
        limit = _value(given, column.type)
        if isinstance(limit, bool):
            raise TypeError("true and false have no order: name one of them")
        if isinstance(limit, str):
            _check_order(column, limit)
        elif pa.types.is_integer(column.type):
            limit = ceil(limit) if key == "min" else floor(limit)
        if isinstance(limit, int) and not -(2**63) <= limit < 2**63:
            column, limit = column.cast(pa.float64(), safe=False), float(limit)
        parts.append(compare(column, limit))
    return reduce(pc.and_, parts)


def _check_order(column: pa.ChunkedArray, limit: str) -> None:
    """Raise ``TypeError`` for texts with digits that do not sort as their values: numbers of
    unequal widths, units, signs, days before their year."""
    texts = pc.unique(column.cast(pa.string())).drop_null()
    shapes = pc.unique(pc.replace_substring_regex(texts, r"\p{N}", "0")).to_pylist()
    shape = re.sub(r"\d", "0", limit)
    digits = [each for each in (*shapes, shape) if "0" in each]
    if digits and (len({*shapes, shape}) > 1 or not _SORTED.fullmatch(shape)):
        known = [*texts[:EXAMPLES].to_pylist(), limit]
        example = next((text for text in known if re.sub(r"\d", "0", text) != shape), known[0])
        raise TypeError(
            f"a range compares texts letter by letter, and {limit!r} and {example!r} do not sort "
            "as their values: name the values in a list"
        )


def _period(value: Any, zone: str | None) -> tuple[pa.Scalar, pa.Scalar]:
    """Return the start and the exclusive end of a year, a month, a day or a moment, by the clock of
    a column."""
    if not isinstance(value, str) or not _TIME.fullmatch(value) or value[:4] == "0000":
        raise TypeError(
            'a date is a text, such as "2020-05-31", "2020-05" or "2020-05-31 18:00"; '
            'a year is "2020"'
        )
    if value[10:] and _ZONE.search(value):
        moment = datetime.fromisoformat(value)
        if zone is not None:
            moment = moment.astimezone(pa.lib.string_to_tzinfo(zone))
        value = moment.replace(tzinfo=None).isoformat()
    start = np.datetime64(value)
    is_period = np.datetime_data(start.dtype)[0] in ("Y", "M", "D")
    moments = start, start + 1 if is_period else start.astype("datetime64[us]") + 1
    first, last = (pa.scalar(moment.astype("datetime64[us]")) for moment in moments)
    return first, last


def _value(value: Any, type_: pa.DataType) -> Any:
    """Return a value of JSON, whose type must be that of the column: nothing is converted."""
    if value is None:
        raise TypeError("null equals nothing: name a value")
    if isinstance(value, float) and not isfinite(value):
        raise TypeError(f"{value} is not a finite number")
    if isinstance(value, bool) != pa.types.is_boolean(type_):
        raise TypeError("true and false fit only a column of booleans")
    types = pa.types
    has_numbers = types.is_integer(type_) or types.is_floating(type_)
    has_texts = not has_numbers and not types.is_boolean(type_)
    if isinstance(value, str) and types.is_integer(type_) and _LARGE.fullmatch(value):
        return int(value)  # as answers have it, see ``bifocal.onnx.files.plain``
    if not isinstance(value, str if has_texts else int | float):
        example = '"10"' if has_texts else "10"
        raise TypeError(
            f"the column has {'texts' if has_texts else 'numbers'}, such as {example}, not "
            f"{value!r}"
        )
    return value


def limit_groups(values: Iterable[Hashable], each: int) -> list[int]:
    """Return the positions of the first ``each`` results of each value; no value is a value too."""
    seen: Counter[Hashable] = Counter()
    kept = []
    for position, value in enumerate(values):
        seen[value] += 1
        if seen[value] <= each:
            kept.append(position)
    return kept
