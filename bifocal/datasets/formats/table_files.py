"""Files of caption tables: CSV, TSV, JSON lines and Parquet."""

import csv
import re
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bifocal.datasets.formats.caption_table import (
    MAX_CHARACTERS,
    REQUIRED,
    CaptionTable,
    recognize,
)
from bifocal.datasets.formats.folder import TABLES, Folder
from bifocal.onnx.files import parse_json

NAMES = ("captions", "metadata")
"""Names of a caption table without their suffix; ``metadata`` is the convention of Hugging Face."""
PUBLISHED = ("captions.txt", "results.csv")
"""Names of the tables of Flickr8k and of Flickr30k on Kaggle, if their first line names the
columns."""
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
MAX_FIELD = 2**31 - 1
ENCODING = (
    "save the table as UTF-8; the argument encoding reads others, such as cp1252 for a table of "
    "Windows, or gbk"
)
_BAD_BYTE = re.compile("[\udc80-\udcff]")
MAX_BYTES = 2 * 2**30
"""Bytes of a table, unpacked: they are in memory at once."""
MAX_ROWS = 5_000_000
MAX_DECODED = 2**30
"""Bytes of the decoded values of a Parquet table: the same value in many rows takes little space in
its file."""


def tables_in(folder: Folder) -> list[str]:
    """Return the names of the caption tables in a folder and below it, sorted."""
    found = [Path(name) for name in folder.others]
    known = [path for path in found if path.stem.lower() in NAMES and path.suffix.lower() in TABLES]
    known += [
        path
        for path in found
        if path.name.lower() in PUBLISHED and _has_columns(folder.root / path)
    ]
    return [path.as_posix() for path in sorted(known)]


def _has_columns(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8-sig") as file:
            line = file.readline(MAX_CHARACTERS)
    except (OSError, UnicodeDecodeError):
        return False
    columns = [name.strip() for name in line.split(_delimiter(line))]
    return all(recognize(columns, role) for role in REQUIRED)


def read_caption_table(root: Path, name: str, encoding: str = "utf-8") -> CaptionTable:
    """Read a table below ``root`` by the suffix of its name; a byte order mark wins over
    ``encoding``.

    Raises:
        ValueError: the table cannot be read, or has no rows.
    """
    path = root / name
    try:
        size = path.stat().st_size
        if size == 0:
            raise ValueError(f"{name} is empty: expected one row per caption")
        _check_size(name, size)
        if path.suffix.lower() == ".parquet":
            return _read_parquet(path, name)
        text = _decode(path, name, encoding)
        is_lines = path.suffix.lower() == ".jsonl"
        return _read_json_lines(name, text) if is_lines else _read_delimited(name, text)
    except MemoryError as error:
        raise ValueError(
            f"{name} needs more memory than this machine has: split it, and the images with it"
        ) from error
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from error


def _check_size(name: str, size: int, rows: int = 0) -> None:
    if size > MAX_BYTES or rows > MAX_ROWS:
        raise ValueError(
            f"{name} has {size / 2**20:,.0f} MiB and {rows:,} rows, more than "
            f"{MAX_BYTES // 2**20:,} MiB or {MAX_ROWS:,} rows: split it, and the images with it"
        )


def _decode(path: Path, name: str, encoding: str) -> str:
    """Return the text of a table; bytes that are not in its encoding become surrogates."""
    data = path.read_bytes()
    marks = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    encoding = next((name for mark, name in marks.items() if data.startswith(mark)), encoding)
    try:
        text = data.decode(encoding, "surrogateescape")
    except LookupError as error:
        raise ValueError(
            f"encoding is {encoding!r}: expected the name of a text encoding, such as utf-8"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not {encoding}: {error.reason}; {ENCODING}") from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ValueError(
            f"{name}, line {line}: a zero byte, so this is not a text table: save it as UTF-8 text"
        )
    lines = text.splitlines()
    bad = [number for number, line in enumerate(lines, 1) if _bad_byte(line)]
    if bad and (bad[0] == 1 or 2 * len(bad) >= len(lines) - 1):
        raise ValueError(f"{name}, line {bad[0]}: {_bad_byte(lines[bad[0] - 1])}: {ENCODING}")
    return text


def _bad_byte(text: str) -> str | None:
    """Return what is wrong with a text that has bytes of another encoding."""
    found = _BAD_BYTE.search(text)
    return f"byte {ord(found[0]) - 0xDC00:#04x} is not UTF-8" if found else None


def _read_delimited(name: str, text: str) -> CaptionTable:
    delimiter = _delimiter(text)
    if "\r" in text.replace("\r\n", "") and "\n" not in text:
        text = text.replace("\r", "\n")
    # A blank before a quote belongs to no field, in the whole table or nowhere.
    has_blanks = re.search(rf'{re.escape(delimiter)} +"', text) is not None
    csv.field_size_limit(MAX_FIELD)  # a long caption is rejected by its length, with its line
    lines = csv.reader(
        StringIO(text, newline=""),
        delimiter=delimiter,
        strict=True,
        skipinitialspace=has_blanks,
    )
    try:
        if text.startswith("sep="):  # the first line of Excel's exports
            next(lines)
        header = _without_end(next((line for line in lines if any(line)), []), 0)
        header = [column.strip() for column in header]
        duplicates = sorted(column for column, count in Counter(header).items() if count > 1)
        if duplicates:
            raise ValueError(
                f"{name}: two columns are called {duplicates[0]!r}: rename one of them"
            )
        table = CaptionTable(name, header, delimiter=delimiter)
        number = lines.line_num + 1
        for line in lines:
            place, number = f"{name}, line {number}", lines.line_num + 1
            values = _without_end(line, len(header))
            if not any(value.strip() for value in values):
                continue
            if len(values) != len(header):
                quote = f": quote a text that contains a {DELIMITERS[delimiter]}" * (
                    len(values) > len(header)
                )
                table.reject(
                    place, f"{len(values)} fields, but the header has {len(header)}{quote}"
                )
            elif problem := _bad_byte("".join(values)):
                table.reject(place, f"{problem}: {ENCODING}")
            else:
                table.rows.append((place, dict(zip(header, values, strict=True))))
    except csv.Error as error:
        line_number, problem = lines.line_num, str(error)
        if "unexpected end" in problem:
            line_number, problem = number, "a quote opens here, and none closes it"
        raise ValueError(
            f"{name}, line {line_number}: {problem}: put quotes around a whole field, and write "
            "a quote inside it twice"
        ) from error
    return table


def _without_end(values: list[str], most: int) -> list[str]:
    """Return the fields of a line without empty ones at its end, beyond the first ``most``."""
    end = len(values)
    while end > most and not values[end - 1].strip():
        end -= 1
    return values[:end]


def _delimiter(text: str) -> str:
    """Return the delimiter by which the first line names a column of images; else its most frequent
    one, such as in "sep=;"; else a comma."""
    header = text.lstrip("\r\n").split("\n", 1)[0]

    def fit(delimiter: str) -> tuple[bool, int]:
        names = [name.strip(' "\r') for name in header.split(delimiter)]
        return delimiter in header and recognize(names, "image") is not None, len(names)

    return max(DELIMITERS, key=fit)


def _read_json_lines(name: str, text: str) -> CaptionTable:
    table = CaptionTable(name, [])
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        try:
            if problem := _bad_byte(line):
                raise ValueError(f"{problem}: {ENCODING}")
            row = parse_json(line)
            "".join(
                row if isinstance(row, dict) else ()
            ).encode()  # half of a surrogate pair names no column
        except ValueError as error:
            table.reject(place, f"not JSON: {error}")
            continue
        if not isinstance(row, dict):
            table.reject(
                place,
                f'a JSON {type(row).__name__}, expected an object such as {{"image": ..., '
                '"caption": ...}',
            )
            continue
        table.add(place, row)
    if not table.rows:
        raise ValueError(f"{name} has no line with a JSON object: expected one object per line")
    return table


def _read_parquet(path: Path, name: str) -> CaptionTable:
    """Read all columns but the bytes of images, of which the paths are read."""
    try:
        with pq.ParquetFile(path) as file:
            described, schema = file.metadata, file.schema_arrow
            groups = range(described.num_row_groups)
            embedded = embedded_images(schema)
            unpacked = sum(described.row_group(number).total_byte_size for number in groups)
            _check_size(name, 0 if embedded else unpacked, described.num_rows)
            table = CaptionTable(name, schema.names)
            columns = [column for column in schema.names if column != embedded]
            if embedded and pa.types.is_struct(schema.field(embedded).type):
                columns.append(f"{embedded}.path")
            decoded, rows = 0, list[dict[str, Any]]()
            for batch in file.iter_batches(columns=columns):
                decoded += sum(map(_decoded_bytes, batch.columns))
                if decoded > MAX_DECODED:
                    raise ValueError(
                        f"{name} has values of more than {MAX_DECODED // 2**20:,} MiB: split it"
                    )
                rows += _rows(table, batch, len(rows))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name} is not a Parquet table: {error}") from error
    table.rows = [(f"{name}, row {number}", row) for number, row in enumerate(rows, start=1)]
    return table


def embedded_images(schema: pa.Schema) -> str | None:
    """Return the column with the bytes of images in a Parquet file, as on the Hugging Face hub, or
    None."""
    column = recognize(schema.names, "image")
    if column is None or not pa.types.is_struct(schema.field(column).type):
        return None
    return column if schema.field(column).type.get_field_index("bytes") >= 0 else None


def is_embedded(path: Path) -> bool:
    """Return whether a file is a Parquet file with the bytes of images."""
    if path.suffix.lower() != ".parquet":
        return False
    try:
        return embedded_images(pq.read_schema(path)) is not None
    except (pa.ArrowException, OSError):
        return False


def _rows(table: CaptionTable, batch: pa.RecordBatch, start: int) -> list[dict[str, Any]]:
    """Return the rows of a batch; times outside the years 1 to 9999 are none, and are listed."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for column, values in columns.items():
        if pa.types.is_temporal(values.type):
            columns[column] = _times(table, column, values, start)
    lists = [
        values.to_pylist() if isinstance(values, pa.Array) else values
        for values in columns.values()
    ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def _times(table: CaptionTable, column: str, values: pa.Array, start: int) -> list[Any]:
    found = list[Any]()
    try:
        found += values.to_pylist()
    except (OverflowError, ValueError):
        for number, value in enumerate(values, start + 1):
            try:
                found.append(value.as_py())
            except (OverflowError, ValueError):
                found.append(None)
                reason = f"{column} is outside the years 1 to 9999: left out"
                table.reject(f"{table.name}, row {number}", reason, kind="value")
    return found


def _decoded_bytes(column: pa.Array) -> int:
    """Return the size of the decoded values in bytes: a dictionary stores equal values once, and a
    null takes no byte before it is in a list."""
    nested: list[pa.Array] = []
    if isinstance(column, pa.MapArray):
        nested = [column.keys, column.items]
    elif isinstance(column, pa.ListArray | pa.LargeListArray | pa.StructArray):
        nested = [column.flatten()] if not isinstance(column, pa.StructArray) else column.flatten()
    if isinstance(column, pa.DictionaryArray) and column.dictionary.type in (
        pa.string(),
        pa.large_string(),
    ):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        return int(column.nbytes) + int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)
    return max(int(column.nbytes), 8 * len(column)) + sum(map(_decoded_bytes, nested))
