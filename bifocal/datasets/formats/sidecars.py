"""Captions beside each image: ``photo.txt`` with one caption per line, or ``photo.json`` as
img2dataset writes it."""

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bifocal.datasets.base import RejectedEntry
from bifocal.datasets.formats.caption_table import MAX_CHARACTERS, CaptionTable
from bifocal.datasets.formats.folder import Folder
from bifocal.onnx.files import open_regular, parse_json

SUFFIXES = (".txt", ".json")
MAX_BYTES = 2**20
"""Bytes of a file beside an image."""
IMAGE, CAPTION = "\0image", "\0caption"  # columns of the table: no key of a user has such a name
KEYS = ("caption", "text", "captions", "texts")
"""Keys of a caption, or of a list of captions, in a JSON file."""
_LABEL = re.compile(r"\S+(\s+-?\d*\.?\d+([eE][-+]?\d+)?){4,}\s*")
"""Line of a label file, such as those of YOLO and KITTI: a class and its numbers."""

LABELS = "labels with numbers, such as those of YOLO, and no captions"


def read_sidecars(
    folder: Folder, *, is_captioned: bool = False, by_key: bool = False
) -> tuple[CaptionTable, set[str]]:
    """Return one row per image that has a text file (a caption per line) or a JSON file of its own
    name, and the files that were used.

    In a JSON file, ``caption`` or ``text`` is the caption unless there is a text file; other values
    are metadata. Text files of labels have no captions.

    Args:
        is_captioned: a table has the captions, so that only values of JSON files are read.
        by_key: the folder has samples of WebDataset, whose images share their text, such as
            0.left.jpg, 0.right.jpg and 0.caption.txt.
    """
    table, used = CaptionTable("", [IMAGE, CAPTION]), set[str]()
    beside = _Beside(folder.others, folder.images, by_key=by_key)
    for image in folder.images:
        stem = image.rpartition(".")[0]
        text, values = (beside.find(stem, suffix) for suffix in SUFFIXES)
        row: dict[str, Any] = {}
        if is_captioned:
            text = None
        used |= {name for name in (text, values) if name is not None}
        try:
            row |= _metadata(folder.root / values) if values is not None else {}
            lines = _lines(folder.root / text) if text is not None else None
            if lines and all(map(_LABEL.fullmatch, lines)):
                table.rejected.append(RejectedEntry("caption", str(text), LABELS, intentional=True))
                lines = None
        except ValueError as error:
            if not is_captioned:
                table.reject(image, str(error))
            continue
        for name in [name for name, value in row.items() if len(str(value)) > MAX_CHARACTERS]:
            table.reject(image, f"{name} has more than {MAX_CHARACTERS:,} characters", kind="value")
            del row[name]
        keys = (
            [] if is_captioned else [key for known in KEYS for key in row if key.lower() == known]
        )
        if lines is None and not row:
            continue
        captions: dict[str, Any] = {} if lines is None else {CAPTION: lines}
        if keys and lines is None:  # all other keys are the user's
            captions = {CAPTION: row.pop(keys[0])}
        elif keys and row[keys[0]] in (lines, *(lines or ())):
            del row[keys[0]]
        table.add(image, {IMAGE: image} | captions | row)
    return table, used


class _Beside:
    """Files by the stems of their names; a stem may be composed in another way than its image's."""

    def __init__(self, names: Sequence[str], images: Sequence[str], *, by_key: bool) -> None:
        self._exact: dict[str, str] = {}
        self._composed: dict[str, list[str]] = {}
        self._shared: dict[str, list[str]] = {}  # by sample, without files of one image
        stems = {image.rpartition(".")[0] for image in images}
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            key = stem + dot + suffix.lower()
            self._exact[key] = name
            if stem not in stems:
                self._composed.setdefault(unicodedata.normalize("NFC", key), []).append(name)
        own = {self.find(stem, suffix) for stem in stems for suffix in SUFFIXES if by_key}
        for name in names if by_key else ():
            if name not in own:
                key = _sample(name) + name[name.rindex(".") :].lower() if "." in name else name
                self._shared.setdefault(key, []).append(name)

    def find(self, stem: str, suffix: str) -> str | None:
        """Return the file of a stem with a suffix in any case."""
        key = stem + suffix
        if key in self._exact:
            return self._exact[key]
        composed = self._composed.get(unicodedata.normalize("NFC", key), [])
        shared = self._shared.get(_sample(stem) + suffix, [])
        return next((names[0] for names in (composed, shared) if len(names) == 1), None)


def _sample(name: str) -> str:
    """Return the key of WebDataset: the name up to the first dot of its last part."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


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
