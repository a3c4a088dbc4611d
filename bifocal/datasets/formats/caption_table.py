"""Tables of captions as people have them (CSV, TSV, JSON lines, Parquet): columns, and the entries
of rows."""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bifocal.datasets.base import RejectedEntry
from bifocal.datasets.formats.folder import TABLES, Folder
from bifocal.datasets.tables import typed_texts

NAMES = ("captions", "metadata")
"""Names of a caption table without their suffix; ``metadata`` is the convention of Hugging Face."""
PUBLISHED = ("captions.txt", "results.csv")
"""Names of the tables of Flickr8k and of Flickr30k on Kaggle, if their first line names the
columns."""
SUFFIXES = TABLES
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
MAX_FIELD = 2**31 - 1
MAX_BYTES = 2 * 2**30
"""Bytes of a table, unpacked: they are in memory at once."""
MAX_ROWS, MAX_COLUMNS = 5_000_000, 1_000
MAX_DECODED = 2**30
"""Bytes of the decoded values of a Parquet table: the same value in many rows takes little space in
its file."""
KNOWN = {
    "image": (
        "image",
        "file_name",
        "filename",
        "image_path",
        "filepath",
        "file",
        "path",
        "image_file",
        "img",
        "photo",
        "image_name",
    ),
    "caption": (
        "caption",
        "captions",
        "text",
        "texts",
        "sentence",
        "sentences",
        "description",
        "title",
        "alt_text",
        "alt",
        "prompt",
        "raw",
        "comment",
    ),
    "split": ("split", "subset", "partition", "fold", "set"),
    "phrases": ("phrases",),
}
"""Names that a column is recognized by, the most certain first; case and spaces are ignored."""
REQUIRED = ("image", "caption")
MAX_CHARACTERS = 10_000
"""Characters of a caption; a longer text is a broken row."""
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
    "eval": "test",
}


@dataclass
class CaptionTable:
    """Rows of a table, and lines that cannot be read as rows."""

    path: Path
    columns: list[str]  # in the order of the file
    rows: list[tuple[str, dict[str, Any]]] = field(
        default_factory=list
    )  # place ("a.csv, line 3"), values
    rejected: list[RejectedEntry] = field(default_factory=list)
    delimiter: str = ""  # of a text table

    def reject(self, place: str, reason: str) -> None:
        """List a line that is not a row."""
        self.rejected.append(RejectedEntry("caption", place, reason))

    def __post_init__(self) -> None:
        if len(self.columns) > MAX_COLUMNS:
            raise ValueError(
                f"{self.path} has {len(self.columns):,} columns, at most {MAX_COLUMNS:,} are read"
            )

    def add(self, place: str, row: dict[str, Any]) -> None:
        """Append a row, whose further names become columns; list it if the table would have too
        many of them."""
        new = (
            list(row)
            if len(row) > MAX_COLUMNS
            else [name for name in row if name not in self.columns]
        )
        if len(self.columns) + len(new) > MAX_COLUMNS:
            self.reject(
                place, f"{len(new):,} further columns, and a table has at most {MAX_COLUMNS:,}"
            )
            return
        self.columns += new
        self.rows.append((place, row))

    def set_types(self, columns: Sequence[str]) -> None:
        """Turn columns of a text table into numbers, days or times if all of their fields are;
        others have types."""
        if not self.delimiter:
            return
        typed = {name: typed_texts([row.get(name) for _, row in self.rows]) for name in columns}
        for number, (_, row) in enumerate(self.rows):
            row.update((name, values[number]) for name, values in typed.items())


def tables_in(folder: Folder) -> list[Path]:
    """Return the caption tables in a folder and below it, sorted."""
    found = [Path(name) for name in (*folder.texts, *folder.others)]
    known = [
        path for path in found if path.stem.lower() in NAMES and path.suffix.lower() in SUFFIXES
    ]
    known += [
        path
        for path in found
        if path.name.lower() in PUBLISHED and _has_columns(folder.root / path)
    ]
    return [path for path in sorted(folder.root / path for path in known) if path.is_file()]


def _has_columns(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8-sig") as file:
            line = file.readline(MAX_CHARACTERS)
    except (OSError, UnicodeDecodeError):
        return False
    columns = [name.strip() for name in line.split(_delimiter(line))]
    return all(recognize(columns, role) for role in REQUIRED)


def read_tables(folder: Folder, encoding: str = "utf-8") -> CaptionTable | None:
    """Return the caption table of a folder, None without one; tables of its folders are joined.

    Names of images in a table below the folder are relative to its own folder, and a folder called
    "train" or "test" is the split of its rows, as in the ``imagefolder`` of Hugging Face.
    """
    found = tables_in(folder)
    if len({path.parent for path in found}) < len(found):
        names = ", ".join(str(path.relative_to(folder.root)) for path in found)
        raise ValueError(f"{folder.root} has several tables, {names}: set captions to one of them")
    tables = [read_caption_table(path, encoding) for path in found]
    if not tables or found == [folder.root / found[0].name]:
        return tables[0] if tables else None
    joined = CaptionTable(
        found[0], list(dict.fromkeys(name for table in tables for name in table.columns))
    )
    joined.delimiter = max(table.delimiter for table in tables)
    has_split = recognize(joined.columns, "split") is not None
    for table in tables:
        inside = table.path.parent.relative_to(folder.root).as_posix()
        column, split = (
            recognize(table.columns, "image"),
            SPLIT_NAMES.get(inside.partition("/")[0].lower()),
        )
        for place, row in table.rows:
            name = row.get(column) if column else None
            if isinstance(name, str) and f"{inside}/{name}" in folder.listed:
                row[str(column)] = f"{inside}/{name}"
            joined.rows.append(
                (
                    f"{inside}/{place}",
                    row if has_split or split is None else {**row, "split": split},
                )
            )
        joined.rejected += [
            replace(entry, entry=f"{inside}/{entry.entry}") for entry in table.rejected
        ]
    if not has_split and any("split" in row for _, row in joined.rows):
        joined.columns.append("split")
    return joined


def read_caption_table(path: Path, encoding: str = "utf-8") -> CaptionTable:
    """Read a table by the suffix of its name; a byte order mark wins over ``encoding``."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty: expected one row per caption")
    _check_size(path, path.stat().st_size)
    try:
        if path.suffix.lower() == ".parquet":
            return _read_parquet(path)
        text = _decode(path, encoding)
        return (
            _read_json_lines(path, text)
            if path.suffix.lower() == ".jsonl"
            else _read_delimited(path, text)
        )
    except MemoryError as error:
        raise ValueError(
            f"{path} needs more memory than this machine has: split it, and the images with it"
        ) from error


def _check_size(path: Path, size: int, rows: int = 0) -> None:
    if size > MAX_BYTES or rows > MAX_ROWS:
        raise ValueError(
            f"{path} has {size / 2**20:,.0f} MiB and {rows:,} rows, more than "
            f"{MAX_BYTES // 2**20:,} MiB or {MAX_ROWS:,} rows: split it, and the images with it"
        )


def _decode(path: Path, encoding: str) -> str:
    data = path.read_bytes()
    marks = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    encoding = next((name for mark, name in marks.items() if data.startswith(mark)), encoding)
    try:
        text = data.decode(encoding)
    except LookupError as error:
        raise ValueError(
            f"encoding is {encoding!r}: expected the name of a text encoding, such as utf-8"
        ) from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: byte {data[error.start]:#04x} is not {encoding}: save the "
            "table as UTF-8, or set encoding: cp1252 for a table of Windows"
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ValueError(
            f"{path}, line {line}: a zero byte, so this is not a text table: save it as UTF-8 text"
        )
    return text


def _read_delimited(path: Path, text: str) -> CaptionTable:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(text)
    if "\r" in text.replace("\r\n", "") and "\n" not in text:
        text = text.replace("\r", "\n")
    with _long_fields():
        lines = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            if text.startswith("sep="):  # the first line of Excel's exports
                next(lines)
            header = [name.strip() for name in next(lines)]
            duplicates = sorted(name for name, count in Counter(header).items() if count > 1)
            if duplicates:
                raise ValueError(
                    f"{path}: two columns are called {duplicates[0]!r}: rename one of them"
                )
            table = CaptionTable(path, header, delimiter=delimiter)
            number = lines.line_num + 1
            for values in lines:
                place, number = f"{path.name}, line {number}", lines.line_num + 1
                if not any(value.strip() for value in values):
                    continue
                if len(values) != len(header):
                    quote = f": quote a text that contains a {DELIMITERS[delimiter]}" * (
                        len(values) > len(header)
                    )
                    table.reject(
                        place, f"{len(values)} fields, but the header has {len(header)}{quote}"
                    )
                else:
                    table.rows.append((place, dict(zip(header, values, strict=True))))
        except csv.Error as error:
            line, problem = lines.line_num, str(error)
            if "unexpected end" in problem:
                line, problem = number, "a quote opens here, and none closes it"
            raise ValueError(
                f"{path}, line {line}: {problem}: put quotes around a whole field, and write a "
                "quote inside it twice"
            ) from error
    return table


def _delimiter(text: str) -> str:
    """Return the delimiter that the first line has most often, such as "sep=;"; a comma if it has
    none."""
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
            "".join(
                row if isinstance(row, dict) else ()
            ).encode()  # half of a surrogate pair names no column
        except (ValueError, RecursionError) as error:
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
        raise ValueError(f"{path} has no line with a JSON object: expected one object per line")
    return table


def _read_parquet(path: Path) -> CaptionTable:
    try:
        described = pq.read_metadata(path)
        unpacked = sum(
            described.row_group(number).total_byte_size
            for number in range(described.num_row_groups)
        )
        _check_size(path, unpacked, described.num_rows)
        table = CaptionTable(path, described.schema.to_arrow_schema().names)
        batches = pq.ParquetFile(path).iter_batches()
        if (
            sum(_decoded_bytes(column) for batch in batches for column in batch.columns)
            > MAX_DECODED
        ):
            raise ValueError(
                f"{path} has values of more than {MAX_DECODED // 2**20:,} MiB: split it"
            )
        rows = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a Parquet table: {error}") from error
    table.rows = [(f"{path.name}, row {number}", row) for number, row in enumerate(rows, start=1)]
    return table


def _decoded_bytes(column: pa.Array) -> int:
    if isinstance(column, pa.ListArray | pa.LargeListArray):
        return int(column.nbytes) + _decoded_bytes(column.flatten())
    if isinstance(column, pa.DictionaryArray) and column.dictionary.type in (
        pa.string(),
        pa.large_string(),
    ):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        return int(column.nbytes) + int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)
    return int(column.nbytes)


@dataclass(frozen=True)
class CaptionColumns:
    """Names of the columns of a caption table."""

    image: str  # path of the image file, relative to the folder
    caption: str  # a caption, or a list of captions
    split: str | None
    phrases: str | None
    others: tuple[str, ...]  # kept as metadata
    guessed: tuple[str, ...]  # roles whose column was recognized by its name


def choose_columns(
    columns: Sequence[str], given: Mapping[str, str | None], table: str
) -> CaptionColumns:
    """Return the column of each role: the ``given`` one, or the column that is recognized by its
    name."""
    chosen: dict[str, str | None] = {}
    for role, names in KNOWN.items():
        name = given.get(role)
        if name is not None and name not in columns:
            raise ValueError(
                f"{table} has no column {name!r} ({role}_column); it has "
                f"{', '.join(map(repr, columns))}"
            )
        chosen[role] = name or _recognize(
            columns, names, taken={name for name in given.values() if name}
        )
        if chosen[role] is None and role in REQUIRED:
            raise ValueError(
                f"{table}: no column is recognized as the {role}'s ({', '.join(names[:4])} "
                f"...); it has {', '.join(map(repr, columns))}. The first line must name the "
                f"columns; or set {role}_column"
            )
    image, caption = chosen["image"], chosen["caption"]
    assert image is not None
    assert caption is not None
    if image == caption:
        raise ValueError(
            f"{table}: image and caption are both read from {image!r}: set image_column and "
            "caption_column"
        )
    used = {name for name in chosen.values() if name}
    return CaptionColumns(
        image,
        caption,
        chosen["split"],
        chosen["phrases"],
        tuple(name for name in columns if name not in used),
        tuple(role for role in KNOWN if chosen[role] and not given.get(role)),
    )


def recognize(columns: Sequence[str], role: str) -> str | None:
    """Return the column of a role, None if there is none."""
    return _recognize(columns, KNOWN[role], taken=set())


def _recognize(columns: Sequence[str], names: Sequence[str], taken: set[str]) -> str | None:
    plain = {"_".join(column.lower().split()): column for column in columns if column not in taken}
    return next((plain[name] for name in names if name in plain), None)
