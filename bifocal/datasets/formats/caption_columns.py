"""Columns of a caption table: which one names the image, which one has the caption."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KNOWN = {
    "image": ("image", "file_name", "filename", "image_path", "filepath", "file", "path", "image_file", "img", "photo"),
    "caption": ("caption", "captions", "text", "texts", "sentence", "sentences", "description", "title", "alt_text",
                "alt", "prompt", "raw"),
    "split": ("split", "subset", "partition", "fold", "set"),
    "phrases": ("phrases",),
}  # fmt: skip
"""Names that a column is recognized by, the most certain first; case and spaces are ignored."""

REQUIRED = ("image", "caption")


@dataclass(frozen=True)
class CaptionColumns:
    """Names of the columns of a caption table."""

    image: str  # path of the image file, relative to the folder
    caption: str  # a caption, or a list of captions
    split: str | None
    phrases: str | None
    others: tuple[str, ...]  # kept as metadata
    guessed: tuple[str, ...]  # roles whose column was recognized by its name


def choose_columns(columns: Sequence[str], given: Mapping[str, str | None], table: str) -> CaptionColumns:
    """Return the column of each role: the ``given`` one, or the column that is recognized by its name."""
    chosen: dict[str, str | None] = {}
    for role, names in KNOWN.items():
        name = given.get(role)
        if name is not None and name not in columns:
            raise ValueError(f"{table} has no column {name!r} ({role}_column); it has {', '.join(map(repr, columns))}")
        chosen[role] = name or _recognize(columns, names, taken={name for name in given.values() if name})
        if chosen[role] is None and role in REQUIRED:
            raise ValueError(
                f"{table}: no column is recognized as the {role}'s ({', '.join(names[:4])} ...); it has "
                f"{', '.join(map(repr, columns))}. The first line must name the columns; or set {role}_column"
            )
    image, caption = chosen["image"], chosen["caption"]
    assert image is not None
    assert caption is not None
    if image == caption:
        raise ValueError(
            f"{table}: image and caption are both read from {image!r}: set image_column and caption_column"
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
