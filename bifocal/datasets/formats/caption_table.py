"""Tables of captions as people have them: CSV, TSV, JSON lines, Parquet."""

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.datasets.base import RejectedEntry
from bifocal.datasets.formats.folder import Folder

NAMES = ("captions", "metadata")
"""Names of a caption table without their suffix; ``metadata`` is the convention of Hugging Face."""
SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
MAX_FIELD = 2**31 - 1
MAX_BYTES = 2 * 2**30
"""Bytes of a table, unpacked: they are in memory at once."""
MAX_ROWS = 5_000_000


@dataclass
class CaptionTable:
    """Rows of a table, and lines that cannot be read as rows."""

    path: Path
    columns: list[str]  # in the order of the file
    rows: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)  # place ("a.csv, line 3"), values
    rejected: list[RejectedEntry] = field(default_factory=list)
    delimiter: str = ""  # of a text table

    def reject(self, place: str, reason: str) -> None:
        """List a line that is not a row."""
        self.rejected.append(RejectedEntry("caption", place, reason))


def tables_in(folder: Folder) -> list[Path]:
    """Return the caption tables in a folder and below it, sorted."""
    found = sorted(folder.root / name for name in folder.others if name.lower().endswith(SUFFIXES))
    return [path for path in found if path.stem.lower() in NAMES and path.is_file()]


def read_caption_table(path: Path, encoding: str = "utf-8") -> CaptionTable:
    """Read a table by the suffix of its name; a byte order mark wins over ``encoding``."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty: expected one row per caption")
    _check_size(path, path.stat().st_size)
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    text = _decode(path, encoding)
    return _read_json_lines(path, text) if path.suffix.lower() == ".jsonl" else _read_delimited(path, text)


def _check_size(path: Path, size: int, rows: int = 0) -> None:
    if size > MAX_BYTES or rows > MAX_ROWS:
        raise ValueError(
            f"{path} has {size / 2**20:,.0f} MiB and {rows:,} rows, more than {MAX_BYTES // 2**20:,} MiB or "
            f"{MAX_ROWS:,} rows: split it, and the images with it"
        )


def _decode(path: Path, encoding: str) -> str:
    data = path.read_bytes()
    marks = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    encoding = next((name for mark, name in marks.items() if data.startswith(mark)), encoding)
    try:
        text = data.decode(encoding)
    except LookupError as error:
        raise ValueError(f"encoding is {encoding!r}: expected the name of a text encoding, such as utf-8") from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: byte {data[error.start]:#04x} is not {encoding}: save the table as UTF-8, or set "
            "encoding, such as latin-1"
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ValueError(f"{path}, line {line}: a zero byte, so this is not a text table: save it as UTF-8 text")
    return text


def _read_delimited(path: Path, text: str) -> CaptionTable:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(text)
    if "\r" in text.replace("\r\n", "") and "\n" not in text:
        text = text.replace("\r", "\n")
    with _long_fields():
        lines = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            header = [name.strip() for name in next(lines)]
            duplicates = sorted({name for name in header if header.count(name) > 1})
            if duplicates:
                raise ValueError(f"{path}: two columns are called {duplicates[0]!r}: rename one of them")
            table = CaptionTable(path, header, delimiter=delimiter)
            number = lines.line_num + 1
            for values in lines:
                place, number = f"{path.name}, line {number}", lines.line_num + 1
                if not any(value.strip() for value in values):
                    continue
                if len(values) != len(header):
                    quote = (
                        f": quote a text that contains a {DELIMITERS[delimiter]}" if len(values) > len(header) else ""
                    )
                    table.reject(place, f"{len(values)} fields, but the header has {len(header)}{quote}")
                else:
                    table.rows.append((place, dict(zip(header, values, strict=True))))
        except csv.Error as error:
            raise ValueError(
                f"{path}, line {lines.line_num}: {error}: put quotes around a whole field, and write a quote inside "
                "it twice"
            ) from error
    return table


def _delimiter(text: str) -> str:
    """Return the delimiter that the header has most often; a comma if it has none."""
    header = text.split("\n", 1)[0]
    return max(DELIMITERS, key=lambda delimiter: (header.count(delimiter), delimiter == ","))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Allow fields of any length: a long caption is rejected by its length, with its line."""
    limit = csv.field_size_limit(MAX_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _read_json_lines(path: Path, text: str) -> CaptionTable:
    table = CaptionTable(path, [])
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path.name}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            table.reject(place, f"not JSON: {error}")
            continue
        if not isinstance(row, dict):
            table.reject(
                place, f'a JSON {type(row).__name__}, expected an object such as {{"image": ..., "caption": ...}}'
            )
            continue
        table.columns += [name for name in row if name not in table.columns]
        table.rows.append((place, row))
    if not table.rows:
        raise ValueError(f"{path} has no line with a JSON object: expected one object per line")
    return table


def _read_parquet(path: Path) -> CaptionTable:
    try:
        described = pq.read_metadata(path)
        unpacked = sum(described.row_group(number).total_byte_size for number in range(described.num_row_groups))
        _check_size(path, unpacked, described.num_rows)
        content = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a Parquet table: {error}") from error
    rows = [(f"{path.name}, row {number}", row) for number, row in enumerate(content.to_pylist(), start=1)]
    return CaptionTable(path, content.column_names, rows)
