"""The schemas of a dataset's tables, and how they are written and read."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

BOXES = pa.list_(pa.list_(pa.float32(), 4))


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
"""One row an image. ``path`` is relative to the image root; width and height are pixels after EXIF rotation.
Where only features are published path and sha256 are null, width and height 0."""

CAPTIONS = _schema(("caption_id", pa.int64()), ("image_id", pa.string()), ("text", pa.string()))

PHRASES = _schema(
    ("phrase_id", pa.int64()),
    ("image_id", pa.string()),
    ("caption_id", pa.int64(), True),
    ("phrase", pa.string()),
    ("boxes", BOXES),
    ("category", pa.string(), True),
)
"""One row a noun phrase; a plural has several boxes. Boxes are x0 y0 x1 y1, pixels after EXIF rotation. The category is
null where the corpus has none; several have "/" between them."""

LABELS = _schema(
    ("image_id", pa.string()),
    ("group", pa.string()),
    ("task", pa.string()),
    ("label", pa.string()),
    ("value", pa.float32(), True),
)
"""One row an image and label of a task; a dataset without labels has no such table. Images of one ``group`` are judged
together, by the mean of their predictions. A null is present, but too hard to see to be measured."""

REJECTED = _schema(("kind", pa.string()), ("what", pa.string()), ("reason", pa.string()), ("by_design", pa.bool_()))
"""Everything of the corpus that is not in the dataset; ``by_design`` if the corpus or the user leaves it out."""

LEAKAGE = _schema(("sha256", pa.string()), ("image_id", pa.string()), ("split", pa.string()))
"""Images whose files are the same, byte for byte, in more than one split."""


def write_table(path: Path, schema: Any, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write ``rows`` as Parquet."""
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)


def read_table(path: Path, schema: Any) -> pd.DataFrame:
    """Read a table in the order of the file; nullable integers become ``Int64``, boxes become (n, 4) float32 arrays.

    Raises:
        FileNotFoundError: there is no such table.
        ValueError: a column is missing, has another type, or has nulls where it must not; names file and column.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: no complete dataset; run prepare_dataset")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is no Parquet table: {error}; run prepare_dataset again") from error
    for field in schema:
        if field.name not in table.column_names:
            raise ValueError(
                f"{path} has no column {field.name!r}; it has {', '.join(table.column_names)}: "
                "run prepare_dataset again"
            )
        column = table.column(field.name)
        if column.type != field.type:
            raise ValueError(
                f"{path}, column {field.name!r}: type {column.type}, expected {field.type}: run prepare_dataset again"
            )
        if column.null_count and not field.nullable:
            raise ValueError(f"{path}, column {field.name!r}: {column.null_count} nulls, expected none")
    # A column of whole numbers with a null in it would otherwise come back as floats.
    nullable = {"caption_id": pd.Int64Dtype()} if schema is PHRASES else {}
    frame = table.select([field.name for field in schema if field.name not in nullable]).to_pandas()
    for name, dtype in nullable.items():
        frame.insert(schema.get_field_index(name), name, pd.array(table.column(name).to_pylist(), dtype=dtype))
    if schema is PHRASES:
        frame["boxes"] = [np.stack(boxes) if len(boxes) else np.zeros((0, 4), np.float32) for boxes in frame["boxes"]]
    return pd.DataFrame(frame)
