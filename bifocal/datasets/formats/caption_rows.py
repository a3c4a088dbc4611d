"""Entries of the rows of a caption table: captions, splits, phrases with boxes, metadata."""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bifocal.datasets.base import Box, PhraseEntry, RejectedEntry
from bifocal.datasets.formats.caption_columns import CaptionColumns
from bifocal.datasets.formats.caption_table import CaptionTable
from bifocal.datasets.formats.folder import Folder

MAX_CHARACTERS = 10_000
"""Characters of a caption; a longer text is a broken row."""
SPLIT_NAMES = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test", "eval": "test",
}  # fmt: skip


@dataclass
class CaptionRows:
    """Entries that were read from the rows of a table, in the order of the rows."""

    captions: list[tuple[str, str]] = field(default_factory=list)  # image and text
    splits: dict[str, str | None] = field(default_factory=dict)  # of every image
    groups: dict[str, str] = field(default_factory=dict)  # of every image
    phrases: list[PhraseEntry] = field(default_factory=list)
    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)  # by image; its first row counts
    rejected: list[RejectedEntry] = field(default_factory=list)


def read_rows(table: CaptionTable, columns: CaptionColumns, folder: Folder, group_column: str | None) -> CaptionRows:
    """Return the entries of all rows of a table."""
    if group_column is not None and group_column not in table.columns:
        raise ValueError(f"{table.path.name} has no column {group_column!r} (group_column); it has {table.columns}")
    rows = CaptionRows()
    for place, row in table.rows:
        try:
            _read_row(rows, row, columns, folder, group_column)
        except _UnusableRow as error:
            rows.rejected.append(RejectedEntry("caption", place, str(error)))
    return rows


class _UnusableRow(Exception):
    """Reason why a row cannot be used."""


def _read_row(
    rows: CaptionRows, row: Mapping[str, Any], columns: CaptionColumns, folder: Folder, group_column: str | None
) -> None:
    name = row.get(columns.image)
    if not isinstance(name, str) or not name.strip():
        raise _UnusableRow(f"{columns.image} is {_shown(name)}: expected the path of an image")
    image = folder.find(name)
    if folder.leads_out(image):
        raise _UnusableRow(f"{columns.image} {image!r} leads out of the folder")
    texts = _captions(row.get(columns.caption), columns.caption)
    split = _split(row.get(columns.split), columns.split) if columns.split else None
    if image in rows.splits and split != rows.splits[image]:
        raise _UnusableRow(f"split is {split!r}, but an earlier row has {rows.splits[image]!r} for {image}")
    phrases = _phrases(row.get(columns.phrases), image) if columns.phrases else []
    rows.splits[image] = split
    rows.captions += [(image, text) for text in texts]
    rows.phrases += phrases
    if group_column is not None:
        rows.groups.setdefault(image, str(row.get(group_column)))
    if image not in rows.metadata:
        rows.metadata[image] = {name: _plain(row.get(name)) for name in columns.others}


def _captions(value: Any, column: str) -> list[str]:
    texts = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    texts = [text for text in texts if not (text is None or (isinstance(text, str) and not text.strip()))]
    if not texts:
        raise _UnusableRow(f"{column} is empty: expected a caption")
    for text in texts:
        if not isinstance(text, str):
            raise _UnusableRow(f"{column} is {_shown(text)}: expected a text, or a list of texts")
        if len(text) > MAX_CHARACTERS:
            raise _UnusableRow(f"{column} has {len(text):,} characters, more than {MAX_CHARACTERS:,}")
        control = next(
            (sign for sign in text if unicodedata.category(sign) in ("Cc", "Cs") and not sign.isspace()), None
        )
        if control is not None:
            raise _UnusableRow(f"{column} has the control character {control!r}")
    return texts


def _split(value: Any, column: str) -> str:
    known = SPLIT_NAMES.get(str(value).strip().lower())
    if known is None:
        raise _UnusableRow(f"{column} is {_shown(value)}: expected train, val or test")
    return known


def _phrases(value: Any, image: str) -> list[PhraseEntry]:
    """Return the phrases of a list, or of its JSON text; an empty field has none."""
    if value is None or value == "":
        return []
    try:
        entries = json.loads(value) if isinstance(value, str) else value
        return [PhraseEntry(image, None, str(entry["phrase"]), tuple(map(_box, entry["boxes"]))) for entry in entries]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _UnusableRow(
            f'phrases is {_shown(value)}: expected [{{"phrase": "the star", "boxes": [[x0, y0, x1, y1]]}}] ({error})'
        ) from error


def _box(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (float(value) for value in values)
    if not all(map(math.isfinite, (x0, y0, x1, y1))):
        raise ValueError("a box has a value that is not finite")
    return x0, y0, x1, y1


def _plain(value: Any) -> Any:
    """Return a value that a column of a table can hold: nested values become JSON text."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value, default=str)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
