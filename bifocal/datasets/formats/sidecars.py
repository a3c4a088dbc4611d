"""Captions beside each image: ``photo.txt`` with one caption per line, or ``photo.json`` as
img2dataset writes it."""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from bifocal.datasets.base import RejectedEntry
from bifocal.datasets.formats.caption_table import CaptionTable
from bifocal.datasets.formats.folder import Folder
from bifocal.onnx.files import open_regular, parse_json

SUFFIXES = (".txt", ".json")
MAX_BYTES = 2**20
"""Bytes of a file beside an image."""
IMAGE, CAPTION = "\0image", "\0caption"  # columns of the table: no key of a user has such a name
KEYS = ("caption", "text", "captions", "texts")
"""Keys of a caption, or of a list of captions, in a JSON file."""


def read_sidecars(folder: Folder) -> CaptionTable:
    """Return one row per image that has a text file (a caption per line) or a JSON file of its own
    name.

    In a JSON file, ``caption`` or ``text`` is the caption unless there is a text file; other values
    are metadata.
    """
    root, table = folder.root, CaptionTable(folder.root, [IMAGE, CAPTION])
    parts = ((*name.rpartition("."), name) for name in sorted((*folder.texts, *folder.others)))
    beside = {stem + dot + suffix.lower(): name for stem, dot, suffix, name in parts}
    for image in folder.images:
        stem = image.rpartition(".")[0]
        text, values = (beside.get(stem + suffix) for suffix in SUFFIXES)
        row: dict[str, Any] = {}
        try:
            row |= _metadata(root / values) if values is not None else {}
            lines = _lines(root / text) if text is not None else None
        except ValueError as error:
            table.reject(stem, str(error))
            continue
        keys = [key for key in KEYS if key in row]
        if lines is None and not keys:
            continue
        # Without a text file, one key is the caption; all others are the user's.
        table.add(
            image, {IMAGE: image, CAPTION: row.pop(keys[0]) if lines is None else lines} | row
        )
    return table


def unused_sidecars(
    root: Path, texts: Sequence[str], images: Sequence[str]
) -> Iterator[RejectedEntry]:
    """Yield the text files that lie beside no image."""
    stems = {str(PurePosixPath(image).with_suffix("")) for image in images}
    for text in texts:
        if str(PurePosixPath(text).with_suffix("")) not in stems:
            yield RejectedEntry("caption", text, f"no image of this name beside it in {root}")


def _lines(path: Path) -> list[str]:
    return [line for line in _text(path).splitlines() if line.strip()]


def _text(path: Path) -> str:
    try:
        with open_regular(path, MAX_BYTES) as file:
            return file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 text: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def _metadata(path: Path) -> dict[str, Any]:
    text = _text(path)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(
            f"{path.name} has a JSON {type(value).__name__}, expected an object with a caption"
        )
    return value
