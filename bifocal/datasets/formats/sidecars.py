"""Captions beside each image: ``photo.txt`` with one caption per line, or ``photo.json`` as img2dataset writes it."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from bifocal.datasets.base import RejectedEntry
from bifocal.datasets.formats.caption_table import CaptionTable
from bifocal.datasets.formats.folder import Folder

SUFFIXES = (".txt", ".json")
KEYS = ("caption", "text", "captions", "texts")
"""Keys of a caption, or of a list of captions, in a JSON file."""


def read_sidecars(folder: Folder) -> CaptionTable:
    """Return one row per image that has a text file (a caption per line) or a JSON file of its own name.

    In a JSON file, ``caption`` or ``text`` is the caption unless there is a text file; other values are metadata.
    """
    root, table = folder.root, CaptionTable(folder.root, ["image", "caption"])
    beside = {name for name in (*folder.texts, *folder.others) if name.endswith(SUFFIXES)}
    for image in folder.images:
        stem = image.rpartition(".")[0]
        if beside.isdisjoint((f"{stem}.txt", f"{stem}.json")):
            continue
        row: dict[str, Any] = {}
        try:
            row |= _metadata(root / f"{stem}.json") if f"{stem}.json" in beside else {}
            lines = _lines(root / f"{stem}.txt") if f"{stem}.txt" in beside else None
        except ValueError as error:
            table.reject(stem, str(error))
            continue
        captions = [row.pop(key) for key in KEYS if key in row]
        if lines is None and not captions:
            continue
        table.columns += [name for name in row if name not in table.columns]
        table.rows.append((image, row | {"image": image, "caption": lines if lines is not None else captions[0]}))
    return table


def unused_sidecars(root: Path, texts: Sequence[str], images: Sequence[str]) -> Iterator[RejectedEntry]:
    """Yield the text files that lie beside no image."""
    stems = {str(PurePosixPath(image).with_suffix("")) for image in images}
    for text in texts:
        if str(PurePosixPath(text).with_suffix("")) not in stems:
            yield RejectedEntry("caption", text, f"no image of this name beside it in {root}")


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 text: {error}") from error


def _metadata(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} has a JSON {type(value).__name__}, expected an object with a caption")
    return value
