"""Entries of the rows of caption tables: captions, splits, phrases with boxes, and metadata."""

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
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
from bifocal.datasets.formats.names import last_parts, match_names
from bifocal.datasets.formats.sidecars import CAPTION
from bifocal.onnx.files import parse_json
from bifocal.progress import log_line

NO_GROUP = frozenset({"", "none", "nan", "na", "n/a", "null", "-"})
"""Values of a column of groups that stand for none."""
BLANK = (
    " \t\r\n\v\f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000\xad\u200b\u200c\u200d\u200e\u200f\u202a\u202c\u2060\ufeff"
)
"""Signs that nobody sees."""
NO_IMAGE = "names no image of the folder"


@dataclass
class CaptionRows:
    """Entries that were read from the rows of tables, in the order of the rows."""

    captions: list[tuple[str, str]] = field(default_factory=list)  # image and text
    splits: dict[str, str | None] = field(default_factory=dict)  # of every image
    groups: dict[str, str] = field(default_factory=dict)  # of images with a value
    phrases: list[PhraseEntry] = field(default_factory=list)
    columns: dict[str, None] = field(default_factory=dict)  # of the metadata, in order
    metadata: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # by image; its first value counts
    rejected: list[RejectedEntry] = field(default_factory=list)
    missing: list[RejectedEntry] = field(default_factory=list)  # rows that name no image

    def add_table(
        self,
        table: CaptionTable,
        columns: CaptionColumns,
        folder: Folder,
        group_column: str | None = None,
        *,
        needs_captions: bool = False,
    ) -> None:
        """Add the entries of all rows of a table.

        Args:
            needs_captions: a row without a caption is listed.
        """
        self.rejected += table.rejected
        table.set_types(columns.others)
        self.columns |= dict.fromkeys(columns.others)
        parent = PurePosixPath(table.name).parent.as_posix()
        base = "" if parent == "." else f"{parent}/"
        split = SPLIT_NAMES.get(base.partition("/")[0].lower())
        names = [_name(row.get(columns.image)) for _, row in table.rows]
        images = folder.below(table.inside) if table.inside else folder
        matched = match_names([name for name in names if name is not None], images, base)
        if matched.rule:
            log_line(f"{table.name}: {matched.rule}")
        is_image = last_parts(names, folder.images if table.delimiter else ())

        def read(record: tuple[str, Mapping[str, Any]]) -> None:
            place, row = record
            name = _name(row.get(columns.image))
            if name is None:
                given = shown(row.get(columns.image))
                raise ValueError(f"{columns.image} is {given}: expected the path of an image")
            image = table.inside + matched.images[name]
            texts = list(self._texts(row, columns, needs_captions, place))
            if needs_captions and columns.caption and not texts:
                return
            check_whole_row(row.values(), table.delimiter, is_image)
            own = _split(row.get(columns.split), columns.split) if columns.split else split
            if image in self.splits and own != self.splits[image]:
                raise ValueError(
                    f"split is {own!r}, but an earlier row has {self.splits[image]!r} for {image}"
                )
            phrases = _phrases(row.get(columns.phrases), image) if columns.phrases else []
            self.splits[image] = own
            self.captions += [(image, text) for text in texts]
            self.phrases += phrases
            group = row.get(group_column) if group_column else None
            if str(group).strip().lower() not in NO_GROUP:
                self.groups.setdefault(image, str(group))
            values = self.metadata.setdefault(image, {})
            for column in columns.others:
                values.setdefault(column, row.get(column))

        known = list[tuple[str, tuple[str, Mapping[str, Any]]]]()
        for (place, row), name in zip(table.rows, names, strict=True):
            if name is None or name in matched.images:
                known.append((place, (place, row)))
            else:
                self.missing.append(RejectedEntry("caption", place, f"{shown(name)} {NO_IMAGE}"))
        read_entries("caption", known, read, self.rejected)

    def _texts(
        self, row: Mapping[str, Any], columns: CaptionColumns, needs_captions: bool, place: str
    ) -> Iterator[str]:
        """Yield the captions of a row; reject the elements of a list that are not captions."""
        if columns.caption is None or (columns.caption == CAPTION and CAPTION not in row):
            return
        column, value = columns.caption.strip("\0"), row.get(columns.caption)
        single = not isinstance(value, Sequence) or isinstance(value, str | bytes)
        values: Sequence[Any] = [value] if single else value  # type: ignore[assignment]
        given = [text for text in values if text is not None and str(text).strip(BLANK)]
        if not given and needs_captions:
            raise ValueError(f"{column} is empty: expected a caption")
        for text in given:
            if problem := _problem(text):
                self.rejected.append(RejectedEntry("caption", place, f"{column} {problem}"))
            else:
                yield text.strip()


def _name(value: Any) -> str | None:
    """Return the path of an image in a field: a text, its bytes, or an image of the Hugging Face
    hub."""
    if isinstance(value, Mapping):
        value = value.get("path")
    if isinstance(value, bytes) and len(value) < MAX_CHARACTERS:
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) and value.strip() else None


def check_whole_row(values: Iterable[Any], delimiter: str, is_image: Callable[[str], bool]) -> None:
    """Raise ``ValueError`` for a value with the row of another image: two quotes are around
    both."""
    texts = [text for text in values if delimiter and isinstance(text, str) and "\n" in text]
    for line in (line for text in texts for line in text.splitlines()):
        fields = line.split(delimiter)
        if name := next(filter(is_image, fields if len(fields) > 1 else ()), None):
            raise ValueError(
                f"a quote opens in this row, and takes in the row of {name.strip()}: write a quote "
                "in a text twice"
            )


def _problem(text: Any) -> str | None:
    if not isinstance(text, str):
        return f"is {shown(text)}: expected a text, or a list of texts"
    if len(text) > MAX_CHARACTERS:
        return f"has {len(text):,} characters, more than {MAX_CHARACTERS:,}"
    signs = (sign for sign in text if unicodedata.category(sign) in ("Cc", "Cs"))
    control = next((sign for sign in signs if not sign.isspace()), None)
    return None if control is None else f"has the control character {control!r}"


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
        entries = parse_json(value) if isinstance(value, str) else value
        found = [
            (read_text(entry["phrase"]), placed("", entry["boxes"]))
            for _, entry in placed("", entries)
        ]
        return [
            PhraseEntry(image, None, text, tuple(_box(box) for _, box in boxes))
            for text, boxes in found
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f'phrases is {shown(value)}: expected [{{"phrase": "the star", "boxes": [[x0, y0, '
            f"x1, y1]]}}] ({error})"
        ) from error


def _box(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (float(value) for value in values)
    if not all(map(math.isfinite, (x0, y0, x1, y1))):
        raise ValueError("a box has a value that is not finite")
    return x0, y0, x1, y1
