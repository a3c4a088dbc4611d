"""Schemas of the tables of a dataset, and their Parquet files."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.datasets.base import META

BOXES = pa.list_(pa.list_(pa.float32(), 4))
METADATA_FILE = "metadata.parquet"
"""One row per image with ``image_id`` and the other values that the corpus has, in columns
``meta.NAME`` with their own types; a dataset without them has no such table."""

CORRECTIONS_FILE = "corrections.parquet"

_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,17})?(e[+-]?\d{1,2}|E[+-]\d{1,2})?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_CLOCK = r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?"
_TIME = re.compile(rf"{_DAY.pattern}({_CLOCK})?", re.ASCII)


def _schema(*columns: tuple[str, Any] | tuple[str, Any, bool]) -> Any:
    return pa.schema(
        [pa.field(*column) if len(column) == 3 else pa.field(*column, False) for column in columns]
    )


IMAGES = _schema(
    ("image_id", pa.string()),
    ("path", pa.string(), True),
    ("width", pa.int32()),
    ("height", pa.int32()),
    ("split", pa.string()),
    ("sha256", pa.string(), True),
)
"""One row per image. ``path`` is relative to the image root; width and height are pixels after EXIF
rotation. If the corpus publishes only features, path is null, width and height 0, and sha256 the
hash of the features."""

CAPTIONS = _schema(("caption_id", pa.int64()), ("image_id", pa.string()), ("text", pa.string()))
"""One row per caption."""

CORRECTIONS = CAPTIONS.append(pa.field("right", pa.bool_(), False))
"""One row per sentence that people found right or wrong for an image; often no table."""

PHRASES = _schema(
    ("phrase_id", pa.int64()),
    ("image_id", pa.string()),
    ("caption_id", pa.int64(), True),
    ("phrase", pa.string()),
    ("boxes", BOXES),
    ("category", pa.string(), True),
    ("mask", pa.string(), True),
)
"""One row per noun phrase; a plural has several boxes. Boxes are x0 y0 x1 y1, pixels after EXIF
rotation. ``caption_id`` is null for a phrase outside captions. ``category`` is null if the corpus
has none; several are joined by "/". ``mask`` (``bifocal.datasets.formats.masks``) covers all
objects of the phrase; null without segmentation."""

LABELS = _schema(
    ("image_id", pa.string()),
    ("group", pa.string()),
    ("task", pa.string()),
    ("label", pa.string()),
    ("value", pa.float32(), True),
)
"""One row per image and label of a task; a dataset without labels has no such table. Images of one
``group`` are evaluated together, by the mean of their predictions. A null value means present but
excluded from metrics."""

REJECTED = _schema(
    ("kind", pa.string()),
    ("entry", pa.string()),
    ("reason", pa.string()),
    ("intentional", pa.bool_()),
)
"""One row per entry of the corpus that is not in the dataset; ``intentional`` if the corpus or the
user excludes it."""

LEAKAGE = _schema(("sha256", pa.string()), ("image_id", pa.string()), ("split", pa.string()))
"""Images with identical files in more than one split."""


def write_table(path: Path, schema: Any, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write ``rows`` as Parquet; a key that a row lacks is null."""
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)


def metadata_table(
    key: str, ids: Sequence[str], metadata: Mapping[str, Mapping[str, Any]], names: Iterable[str]
) -> Any:
    """Return one row per id, which is in column ``key``, with the user's columns ``names`` as
    ``meta.NAME``."""
    columns = {
        META + name: one_type([metadata.get(each, {}).get(name) for each in ids]) for name in names
    }
    return pa.table({key: pa.array(ids, pa.string()), **columns})


def write_metadata(
    path: Path, metadata: Mapping[str, Mapping[str, Any]], image_ids: Iterable[str]
) -> None:
    """Write one row per image, see ``metadata_table``."""
    names = list(dict.fromkeys(name for values in metadata.values() for name in values))
    pq.write_table(metadata_table("image_id", list(image_ids), metadata, names), path)


def one_type(values: Sequence[Any]) -> pa.Array:
    """Return values as an array of Arrow; nested values become JSON, and so do values of several
    types. Times that ``datetime`` cannot represent in their zone become texts."""
    plain = [_plain(value) for value in values]
    given = [value for value in plain if value is not None]
    kinds = {_kind_of(value) for value in given}
    has_fractions = any(isinstance(value, float) for value in given)
    if len(kinds) > 1 or (has_fractions and not all(map(_is_exact, given))):
        return pa.array(map(_text, plain), pa.string())
    if kinds != {"times"}:
        return pa.array(plain)
    zoned = [value for value in given if isinstance(value, datetime) and value.tzinfo]
    times = _times(plain, pa.array(zoned[:1]).type.tz if len(zoned) == len(given) else None)
    try:
        times.to_pylist()
    except OverflowError:  # the zone moves a time out of the years 1 to 9999
        return pa.array(map(_text, plain), pa.string())
    return times


def _plain(value: Any) -> Any:
    if isinstance(value, str):  # half of a surrogate pair cannot be stored
        return value if value.isascii() else value.encode(errors="replace").decode()
    if value is None or isinstance(value, bool | float | date):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "truths"
    if isinstance(value, int | float):
        return "numbers"
    return "times" if isinstance(value, date) else "texts"


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


def _is_exact(value: Any) -> bool:
    """Return whether a value is the same among fractions."""
    return not isinstance(value, int) or abs(value) <= 2**53


def _times(values: Sequence[date | None], zone: str | None, *, moments: bool = False) -> pa.Array:
    """Return days, or moments if there is one: in a zone, or else as the clock of their place."""
    if not (zone or moments or any(isinstance(value, datetime) for value in values)):
        return pa.array(values, pa.date32())
    own = pa.lib.string_to_tzinfo(zone) if zone else None
    placed: list[datetime | None] = [
        value if value is None or isinstance(value, datetime) else datetime.combine(value, time())
        for value in values
    ]
    placed = [
        value if value is None or (own and value.tzinfo) else value.replace(tzinfo=own)
        for value in placed
    ]
    return pa.array(placed, pa.timestamp("us", zone))


def with_type(column: pa.ChunkedArray, type_: pa.DataType) -> tuple[pa.ChunkedArray, list[Any]]:
    """Return a column with the kind of a type: numbers, times, texts or booleans; and the values
    that do not fit.

    These become null. Whole numbers and days stay what they are, unless the column has fractions or
    times now.
    """
    kind, values = _kind(type_), [_plain(value) for value in column.to_pylist()]
    if kind == "texts":
        return pa.chunked_array([pa.array(map(_text, values), pa.string())]), []
    zone = type_.tz if pa.types.is_timestamp(type_) else None
    typed = [_fitting(value, kind, zone) for value in values]
    is_float = pa.types.is_floating(type_) or any(isinstance(value, float) for value in typed)
    if is_float:
        typed = [value if _is_exact(value) else None for value in typed]
    misfits = [
        value
        for value, fit in zip(values, typed, strict=True)
        if fit is None and value not in (None, "")
    ]
    if kind == "times":
        return pa.chunked_array(
            [_times(typed, zone, moments=pa.types.is_timestamp(type_))]
        ), misfits
    types = {"truths": pa.bool_(), "numbers": pa.float64() if is_float else pa.int64()}
    return pa.chunked_array([pa.array(typed, types[kind])]), misfits


def _fitting(value: Any, kind: str, zone: str | None) -> Any:
    """Return a value as one of a kind, None if it is not."""
    if isinstance(value, str) and kind != "truths":
        value = typed_texts([value])[0]
    if value is None or _kind_of(value) != kind:
        return None
    try:
        _times([value], zone).to_pylist() if zone else None
    except OverflowError:  # its moment in the zone is outside the years 1 to 9999
        return None
    return value


def _kind(type_: pa.DataType) -> str:
    types = pa.types
    if types.is_integer(type_) or types.is_floating(type_):
        return "numbers"
    if types.is_date(type_) or types.is_timestamp(type_):
        return "times"
    return "truths" if types.is_boolean(type_) else "texts"


def typed_texts(texts: Sequence[Any]) -> list[Any]:
    """Return the fields of a text column as numbers, days or times if all are, with None for empty
    fields.

    A column with a leading zero, such as an article number, a plus, more digits than a number keeps
    or two spellings of a number, such as the versions 1.1 and 1.10, stays text. A time is that of
    the clock where it was written.
    """
    stripped = [text.strip() if isinstance(text, str) else "" for text in texts]
    given = {text for text in stripped if text}
    kinds = (
        (_WHOLE, int),
        (_NUMBER, float),
        (_DAY, date.fromisoformat),
        (_TIME, _clock_time),
    )
    for pattern, convert in kinds:
        if all(map(pattern.fullmatch, given)):
            try:
                values = {text: convert(text) for text in given}
            except ValueError:  # 2024-02-30
                break
            if convert in (int, float) and len(set(values.values())) < len(given):
                break
            return [values.get(text) for text in stripped]
    return list(texts)


def _clock_time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


def read_table(path: Path, schema: Any) -> pd.DataFrame:
    """Read a table in the order of the file; nullable integers become ``Int64``, boxes become (n,
    4) float32 arrays."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; the folder holds no complete dataset")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{path} is not a Parquet table: {error}; write the dataset again"
        ) from error
    for field in schema:
        _check_column(path, table, field)
    # pandas would turn an integer column with nulls into floats.
    nullable = {"caption_id": pd.Int64Dtype()} if schema is PHRASES else {}
    frame = table.select([field.name for field in schema if field.name not in nullable]).to_pandas()
    for name, dtype in nullable.items():
        frame.insert(
            schema.get_field_index(name),
            name,
            pd.array(table.column(name).to_pylist(), dtype=dtype),
        )
    if schema is PHRASES:
        frame["boxes"] = [
            np.stack(boxes) if len(boxes) else np.zeros((0, 4), np.float32)
            for boxes in frame["boxes"]
        ]
    return pd.DataFrame(frame)


def _check_column(path: Path, table: Any, field: Any) -> None:
    if field.name not in table.column_names:
        raise ValueError(
            f"{path} has no column {field.name!r}; it has {', '.join(table.column_names)}: "
            "write the dataset again"
        )
    column = table.column(field.name)
    if column.type != field.type:
        raise ValueError(
            f"{path}, column {field.name!r}: type {column.type}, expected {field.type}: write "
            "the dataset again"
        )
    if column.null_count and not field.nullable:
        raise ValueError(f"{path}, column {field.name!r}: {column.null_count} nulls, expected none")
