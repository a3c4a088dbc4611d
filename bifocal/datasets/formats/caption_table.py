"""Tables of captions as people have them: rows, and the columns of their roles."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bifocal.datasets.base import RejectedEntry
from bifocal.datasets.tables import typed_texts

MAX_COLUMNS = 1_000
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
ROLES = tuple(KNOWN)
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

    name: str  # path below the folder
    columns: list[str]  # in the order of the file
    rows: list[tuple[str, dict[str, Any]]] = field(
        default_factory=list
    )  # place ("a.csv, line 3"), values
    rejected: list[RejectedEntry] = field(default_factory=list)
    delimiter: str = ""  # of a text table
    inside: str = ""  # folder of the archive beside the table, such as "images.zip/"

    def reject(self, place: str, reason: str, kind: str = "caption") -> None:
        """List a line that is not a row, or a value that its row does not have."""
        self.rejected.append(RejectedEntry(kind, place, reason, intentional=kind == "value"))

    def __post_init__(self) -> None:
        if len(self.columns) > MAX_COLUMNS:
            raise ValueError(
                f"{self.name} has {len(self.columns):,} columns, at most {MAX_COLUMNS:,} are read"
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


@dataclass(frozen=True)
class CaptionColumns:
    """Names of the columns of a caption table."""

    image: str  # path of the image file, relative to the folder
    caption: str | None  # a caption, or a list of captions
    split: str | None
    phrases: str | None
    others: tuple[str, ...]  # kept as metadata
    guessed: tuple[str, ...]  # roles whose column was recognized by its name


def choose_columns(
    columns: Sequence[str],
    given: Mapping[str, str | None],
    table: str,
    required: Collection[str] = REQUIRED,
    roles: Collection[str] = ROLES,
) -> CaptionColumns:
    """Return the column of each role: the ``given`` one, or the column that is recognized by its
    name."""
    chosen: dict[str, str | None] = {}
    for role, names in KNOWN.items():
        name = given.get(role)
        if role not in roles:
            chosen[role] = None
            continue
        if name is not None and name not in columns:
            raise ValueError(
                f"{table} has no column {name!r} ({role}_column); it has "
                f"{', '.join(map(repr, columns))}"
            )
        chosen[role] = name or recognize(columns, role, taken=[*given.values()])
        if chosen[role] is None and role in required:
            raise ValueError(
                f"{table}: no column is recognized as the {role}'s ({', '.join(names[:4])} "
                f"...); it has {', '.join(map(repr, columns))}. The first line must name the "
                f"columns; or set {role}_column"
            )
    image, caption = chosen["image"], chosen["caption"]
    assert image is not None
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


def recognize(columns: Sequence[str], role: str, taken: Collection[object] = ()) -> str | None:
    """Return the column of a role that is not ``taken``, None if there is none."""
    plain = {"_".join(column.lower().split()): column for column in columns if column not in taken}
    return next((plain[name] for name in KNOWN[role] if name in plain), None)
