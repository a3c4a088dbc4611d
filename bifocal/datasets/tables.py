"""Schemas of the tables of a dataset, and their Parquet files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

BOXES = pa.list_(pa.list_(pa.float32(), 4))
METADATA_FILE = "metadata.parquet"
"""One row per image with the other values that the corpus has, in columns of its own names and types beside
``image_id``; a dataset without them has no such table."""


def _schema(*columns: tuple[str, Any] | tuple[str, Any, bool]) -> Any:
    return pa.schema([pa.field(*column) if len(column) == 3 else pa.field(*column, False) for column in columns])


IMAGES = _schema(
    ("image_id", pa.string()),
    ("path", pa.string(), True),
    ("width", pa.int32()),
    ("height", pa.int32()),
    ("split", pa.string()),
    ("sha256", pa.string(), True),
)
"""One row per image. ``path`` is relative to the image root; width and height are pixels after EXIF rotation.
If the corpus publishes only features, path is null, width and height 0, and sha256 the hash of the features."""

CAPTIONS = _schema(("caption_id", pa.int64()), ("image_id", pa.string()), ("text", pa.string()))
"""One row per caption."""

PHRASES = _schema(
    ("phrase_id", pa.int64()),
    ("image_id", pa.string()),
    ("caption_id", pa.int64(), True),
    ("phrase", pa.string()),
    ("boxes", BOXES),
    ("category", pa.string(), True),
    ("mask", pa.string(), True),
)
"""One row per noun phrase; a plural has several boxes. Boxes are x0 y0 x1 y1, pixels after EXIF rotation.
``caption_id`` is null for a phrase outside captions. ``category`` is null if the corpus has none; several are joined by
"/". ``mask`` (``bifocal.datasets.formats.masks``) covers all objects of the phrase; null without segmentation."""

LABELS = _schema(
    ("image_id", pa.string()),
    ("group", pa.string()),
    ("task", pa.string()),
    ("label", pa.string()),
    ("value", pa.float32(), True),
)
"""One row per image and label of a task; a dataset without labels has no such table. Images of one ``group`` are
evaluated together, by the mean of their predictions. A null value means present but excluded from metrics."""

REJECTED = _schema(("kind", pa.string()), ("entry", pa.string()), ("reason", pa.string()), ("intentional", pa.bool_()))
"""One row per entry of the corpus that is not in the dataset; ``intentional`` if the corpus or the user excludes it."""

LEAKAGE = _schema(("sha256", pa.string()), ("image_id", pa.string()), ("split", pa.string()))
"""Images with identical files in more than one split."""


def write_table(path: Path, schema: Any, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write ``rows`` as Parquet; a key that a row lacks is null."""
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)


def write_metadata(path: Path, metadata: Mapping[str, Mapping[str, Any]], image_ids: Iterable[str]) -> None:
    """Write one row per image; a column with values of several types holds their texts."""
    names = list(dict.fromkeys(name for values in metadata.values() for name in values if name != "image_id"))
    ids = list(image_ids)
    columns: dict[str, Any] = {"image_id": pa.array(ids, pa.string())}
    columns |= {name: one_type([metadata.get(image_id, {}).get(name) for image_id in ids]) for name in names}
    pq.write_table(pa.table(columns), path)


def one_type(values: Sequence[Any]) -> Any:
    """Return values as an array of Arrow; values of several types become texts."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def read_table(path: Path, schema: Any) -> pd.DataFrame:
    """Read a table in the order of the file; nullable integers become ``Int64``, boxes become (n, 4) float32 arrays."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; the folder holds no complete dataset")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet table: {error}; write the dataset again") from error
    for field in schema:
        _check_column(path, table, field)
    # pandas would turn an integer column with nulls into floats.
    nullable = {"caption_id": pd.Int64Dtype()} if schema is PHRASES else {}
    frame = table.select([field.name for field in schema if field.name not in nullable]).to_pandas()
    for name, dtype in nullable.items():
        frame.insert(schema.get_field_index(name), name, pd.array(table.column(name).to_pylist(), dtype=dtype))
    if schema is PHRASES:
        frame["boxes"] = [np.stack(boxes) if len(boxes) else np.zeros((0, 4), np.float32) for boxes in frame["boxes"]]
    return pd.DataFrame(frame)


def _check_column(path: Path, table: Any, field: Any) -> None:
    if field.name not in table.column_names:
        raise ValueError(
            f"{path} has no column {field.name!r}; it has {', '.join(table.column_names)}: write the dataset again"
        )
    column = table.column(field.name)
    if column.type != field.type:
        raise ValueError(
            f"{path}, column {field.name!r}: type {column.type}, expected {field.type}: write the dataset again"
        )
    if column.null_count and not field.nullable:
        raise ValueError(f"{path}, column {field.name!r}: {column.null_count} nulls, expected none")
