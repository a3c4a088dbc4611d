"""Items of a static copy: vectors of int8, biases, captions, metadata and thumbnails."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from bifocal.datasets.base import META
from bifocal.onnx.int8 import quantize_rows
from bifocal.search.calibration.calibration import DEPTH
from bifocal.search.filters import GROUP_DEPTH
from bifocal.serving.service.description import summarize
from bifocal.serving.service.models import SearchModel
from bifocal.serving.service.pictures import small_picture
from bifocal.serving.service.schema import Column
from bifocal.serving.service.settings import Settings

MAX_BYTES = 6_000
"""Largest size of a thumbnail."""
SIDES = (256, 192, 128, 96, 64)
"""Longest sides of a thumbnail, pixels: the first that is small enough."""
QUALITIES = (75, 50, 35)
METHOD = 2  # of the encoder: the default takes twice the time and saves 5 %


def write_vectors(model: SearchModel, rows: NDArray[np.int64], folder: Path) -> None:
    """Write the vectors of rows of the index as int8 with a scale each, and their biases, if the
    index has them."""
    values, scales = quantize_rows(np.asarray(model.index.vectors[rows], dtype=np.float32))
    (folder / "vectors.i8").write_bytes(values.tobytes())
    (folder / "scales.f32").write_bytes(scales.astype("<f4").tobytes())
    if model.index.bias is not None:
        (folder / "bias.f32").write_bytes(model.index.bias[rows].astype("<f4").tobytes())


def write_collection(
    model: SearchModel,
    rows: NDArray[np.int64],
    pictures: Sequence[bool],
    folder: Path,
    explains: bool,
) -> None:
    """Write ``collection.json``: model, calibration, captions and metadata of rows of the index.

    ``explains`` states whether the copy shows where phrases are.
    """
    table, calibration = model.index.items.take(rows), model.index.calibration
    summary = summarize(table, rows, model.items)
    facts = [model.items.facts(row) for row in rows.tolist()]
    columns = dict.fromkeys(name for fact in facts for name in fact["metadata"])
    content = {
        "model": model.version.model,
        "model_hash": model.version.model_hash,
        "dimension": model.index.description.dimension,
        "corrected": model.index.bias is not None,
        "calibration": None
        if calibration is None
        or calibration.names is not None  # the copy would need the vectors of the names
        else asdict(calibration) | {"relevant": calibration.relevant, "depth": DEPTH},
        "group_depth": GROUP_DEPTH,
        "max_words": Settings.max_words,
        "max_results": Settings.max_results,
        "encoder": {"graph": "text_encoder.onnx", "readers": "readers.json"},
        "languages": summary.languages,
        "examples": [example.text for example in summary.examples],
        "columns": [
            describe_column(column, table[META + column.name]) for column in summary.columns
        ],
        "ids": [fact["id"] for fact in facts],
        "captions": [fact["captions"] for fact in facts],
        "metadata": {
            name: [_number(fact["metadata"].get(name)) for fact in facts] for name in columns
        },
        "names": [fact["name"] for fact in facts],
        "widths": [fact["width"] for fact in facts],
        "heights": [fact["height"] for fact in facts],
        "pictures": list(pictures),
        "explains": explains,
    }
    write_json(folder / "collection.json", content)


def write_json(file: Path, content: Any) -> None:
    """Write JSON without spaces."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    file.write_text(text, encoding="utf-8")


def site_thumbnail(file: Path) -> bytes:
    """Return a WebP of an image file in at most ``MAX_BYTES``, without the metadata of the file."""
    picture = small_picture(file, SIDES[0])
    for side in SIDES:
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        for quality in QUALITIES:
            buffer = BytesIO()
            picture.save(buffer, "WEBP", quality=quality, method=METHOD)
            if buffer.tell() <= MAX_BYTES:
                return buffer.getvalue()
    raise ValueError(
        f"{file}: no thumbnail of at most {MAX_BYTES} bytes"
    )  # a WebP of 64 pixels has at most 4 KB


def describe_column(column: Column, values: pa.ChunkedArray) -> dict[str, Any]:
    """Return a column of metadata as ``page/filter.js`` reads it; the values of times are
    milliseconds since 1970."""
    found = asdict(column) | {"type": _type(column, values.type)}
    if column.kind == "time":
        found["filtered"] = [_milliseconds(value) for value in values.to_pylist()]
    return found


def _type(column: Column, type_: pa.DataType) -> str:
    if column.kind != "number":
        return column.kind
    if pa.types.is_integer(type_):
        return "integer"
    return "double" if pa.types.is_float64(type_) else "single"


def _milliseconds(value: Any) -> float | None:
    if isinstance(value, datetime):
        known = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return known.timestamp() * 1000
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000
    return None  # a time of day or a duration fulfills no condition


def _number(value: Any) -> Any:
    """Return None for a number that JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
