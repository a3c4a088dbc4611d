"""Entries of the rows of a caption table: captions, splits, phrases with boxes, and metadata."""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bifocal.datasets.base import Box, PhraseEntry, RejectedEntry
from bifocal.datasets.formats.caption_table import (
    MAX_CHARACTERS,
    SPLIT_NAMES,
    CaptionColumns,
    CaptionTable,
)
from bifocal.datasets.formats.entries import placed, read_entries, read_text, shown
from bifocal.datasets.formats.folder import Folder


@dataclass
class CaptionRows:
    """Entries that were read from the rows of a table, in the order of the rows."""

    captions: list[tuple[str, str]] = field(default_factory=list)  # image and text
    splits: dict[str, str | None] = field(default_factory=dict)  # of every image
    groups: dict[str, str] = field(default_factory=dict)  # of every image
    phrases: list[PhraseEntry] = field(default_factory=list)
    metadata: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # by image; its first row counts
    rejected: list[RejectedEntry] = field(default_factory=list)


def read_rows(
    table: CaptionTable, columns: CaptionColumns, folder: Folder, group_column: str | None
) -> CaptionRows:
    """Return the entries of all rows of a table."""
    if group_column is not None and group_column not in table.columns:
        raise ValueError(
            f"{table.path.name} has no column {group_column!r} (group_column); it has "
            f"{table.columns}"
        )
    rows = CaptionRows()
    table.set_types(columns.others)

    def read(row: Mapping[str, Any]) -> None:
        _read_row(rows, row, columns, folder, group_column, table.delimiter)

    read_entries("caption", table.rows, read, rows.rejected)
    return rows


def _read_row(
    rows: CaptionRows,
    row: Mapping[str, Any],
    columns: CaptionColumns,
    folder: Folder,
    group_column: str | None,
    delimiter: str,
) -> None:
    name = row.get(columns.image)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{columns.image} is {shown(name)}: expected the path of an image")
    image = folder.find(name)
    if folder.leads_out(image):
        raise ValueError(f"{columns.image} {image!r} leads out of the folder")
    texts = _captions(row.get(columns.caption), columns.caption)
    check_whole_row(texts, delimiter, folder)
    split = _split(row.get(columns.split), columns.split) if columns.split else None
    if image in rows.splits and split != rows.splits[image]:
        raise ValueError(
            f"split is {split!r}, but an earlier row has {rows.splits[image]!r} for {image}"
        )
    phrases = _phrases(row.get(columns.phrases), image) if columns.phrases else []
    rows.splits[image] = split
    rows.captions += [(image, text) for text in texts]
    rows.phrases += phrases
    if group_column is not None:
        rows.groups.setdefault(image, str(row.get(group_column)))
    if image not in rows.metadata:
        rows.metadata[image] = {name: row.get(name) for name in columns.others}


def check_whole_row(texts: Sequence[str], delimiter: str, folder: Folder) -> None:
    """Raise ``ValueError`` for a caption with the row of another image: two quotes are around
    both."""
    for line in (
        line
        for text in texts
        if "\n" in text
        for line in text.splitlines()[1:]
        if delimiter in line
    ):
        name = line.partition(delimiter)[0]
        if delimiter and folder.find(name) in folder.listed:
            raise ValueError(
                f"a quote opens in this row, and takes in the row of {name}: write a quote in "
                "a text twice"
            )


def _captions(value: Any, column: str) -> list[str]:
    texts = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    texts = [
        text for text in texts if not (text is None or (isinstance(text, str) and not text.strip()))
    ]
    if not texts:
        raise ValueError(f"{column} is empty: expected a caption")
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{column} is {shown(text)}: expected a text, or a list of texts")
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"{column} has {len(text):,} characters, more than {MAX_CHARACTERS:,}")
        control = next(
            (
                sign
                for sign in text
                if unicodedata.category(sign) in ("Cc", "Cs") and not sign.isspace()
            ),
            None,
        )
        if control is not None:
            raise ValueError(f"{column} has the control character {control!r}")
    return texts


def _split(value: Any, column: str) -> str:
    known = SPLIT_NAMES.get(str(value).strip().lower())
    if known is None:
        raise ValueError(f"{column} is {shown(value)}: expected train, val or test")
    return known


def _phrases(value: Any, image: str) -> list[PhraseEntry]:
    """Return the phrases of a list, or of its JSON text; an empty field has none."""
    if value is None or value == "":
        return []
    try:
        entries = json.loads(value) if isinstance(value, str) else value
        found = [
            (read_text(entry["phrase"]), placed("", entry["boxes"]))
            for _, entry in placed("", entries)
        ]
        return [
            PhraseEntry(image, None, text, tuple(_box(box) for _, box in boxes))
            for text, boxes in found
        ]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            f'phrases is {shown(value)}: expected [{{"phrase": "the star", "boxes": [[x0, y0, '
            f"x1, y1]]}}] ({error})"
        ) from error


def _box(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (float(value) for value in values)
    if not all(map(math.isfinite, (x0, y0, x1, y1))):
        raise ValueError("a box has a value that is not finite")
    return x0, y0, x1, y1
