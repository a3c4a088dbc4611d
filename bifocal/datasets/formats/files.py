"""Files of a corpus: checked folders, text files and JSON files, with errors that name the corpus
and the file."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from bifocal.datasets.base import SPLITS, CaptionEntry, Corpus, ImageEntry
from bifocal.datasets.formats.entries import (
    placed,
    read_entries,
    read_id,
    read_text,
    read_whole,
    shown,
)
from bifocal.onnx.files import parse_json

CHUNK = 1 << 16
"""Characters of a streamed file that are read together."""


def require_root(root: Path | str | None, corpus: str, files: str) -> Path:
    """Return the root folder of a corpus; the error message says which ``files`` it must
    contain."""
    if root is None:
        raise ValueError(f"{corpus} needs root: the folder with {files}")
    if not Path(root).is_dir():
        raise ValueError(f"{corpus}: root {str(root)!r} is not a folder; it must contain {files}")
    return Path(root)


def require_file(path: Path, corpus: str) -> None:
    """Raise ``ValueError`` unless a corpus has a file."""
    if not path.is_file():
        raise ValueError(f"{corpus} needs {path}: no such file")


def check_columns(path: Path, columns: Collection[str], expected: Iterable[str]) -> None:
    """Raise ``ValueError`` unless the table of a file has the expected columns."""
    missing = [name for name in expected if name not in columns]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(columns)}")


def find_lists(folder: Path, names: Mapping[str, str], corpus: str) -> dict[str, Path]:
    """Return the list of each split that is in ``folder``; at least one must be."""
    lists = {split: folder / name for split, name in names.items() if (folder / name).is_file()}
    if not lists:
        raise ValueError(f"{corpus}: {folder} has none of the lists {', '.join(names.values())}")
    return lists


def read_names(path: Path, corpus: str) -> list[str]:
    """Return the lines of a list, stripped, without empty lines."""
    return [line.strip() for line in read_lines(path, corpus) if line.strip()]


def read_lines(path: Path, corpus: str) -> list[str]:
    """Return the lines of a UTF-8 text file, including empty lines."""
    require_file(path, corpus)
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error


def open_array(path: Path, corpus: str) -> NDArray[Any]:
    """Map published features to memory: numbers (N, D) or (N, R, D)."""
    require_file(path, corpus)
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a complete array of numbers: {error}") from error
    if array.ndim not in (2, 3) or not np.issubdtype(array.dtype, np.number):
        raise ValueError(
            f"{path} has shape {array.shape} of {array.dtype}, expected numbers (N, D) or (N, R, D)"
        )
    return array


def read_json(path: Path, corpus: str, *keys: str) -> dict[str, Any]:
    """Return the object in a JSON file, which must have a list under each of ``keys``."""
    value = _parse_json(path, corpus)
    for key in keys:
        if not (isinstance(value, dict) and isinstance(value.get(key), list)):
            raise ValueError(f"{path}: expected an object with a list {key!r}")
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object, got {type(value).__name__}")
    return dict(value)


def read_json_list(path: Path, corpus: str) -> list[Any]:
    """Return the list in a JSON file."""
    value = _parse_json(path, corpus)
    if not isinstance(value, list):
        raise ValueError(f"{path}: expected a list, got {type(value).__name__}")
    return value


def stream_json_list(path: Path, corpus: str) -> Iterator[Any]:
    """Yield the values of the list in a JSON file one by one: a large file is never in memory as a
    whole."""
    require_file(path, corpus)
    decoder = json.JSONDecoder()
    with path.open(encoding="utf-8") as file:
        text = ""
        while not text and (chunk := file.read(CHUNK)):
            text = chunk.lstrip()
        if not text.startswith("["):
            raise ValueError(f"{path}: expected a list of objects")
        text = text[1:].lstrip()
        while not text.startswith("]"):
            try:
                value, end = decoder.raw_decode(text)
                # The separator, or the end of the list, must be there too.
                rest = text[end:].lstrip()
                separator = rest[0]
            except RecursionError as error:
                raise ValueError(f"{path} is not JSON: {error}") from error
            except (ValueError, IndexError) as error:
                more = file.read(CHUNK)
                if not more:
                    raise ValueError(f"{path} is not JSON: {error}") from error
                text = (text + more).lstrip()
                continue
            if separator not in ",]":
                raise ValueError(f"{path}: expected a list of objects")
            text = rest.removeprefix(",").lstrip()
            yield value


def read_xml(path: Path, corpus: str) -> ElementTree.Element:
    """Return the root of an XML file."""
    require_file(path, corpus)
    try:
        return ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is not XML: {error}") from error


def _parse_json(path: Path, corpus: str) -> Any:
    require_file(path, corpus)
    try:
        return parse_json(path.read_bytes())
    except (ValueError, MemoryError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def read_karpathy(path: Path, image_root: Path, corpus: str, *, restval: bool = True) -> Corpus:
    """Read images ``filepath/filename`` below ``image_root``; the images of restval join train or
    are excluded."""
    found = Corpus(image_root)

    def read(item: Any) -> ImageEntry | None:
        name, split = read_text(item["filename"]), item["split"]
        image_id = read_id(item.get("cocoid", name))
        file = PurePosixPath(read_text(item.get("filepath", ""))) / name
        if split not in (*SPLITS, "restval"):
            raise ValueError(f"split {shown(split)}, expected {', '.join(SPLITS)} or restval")
        sentences = read_entries(
            "caption",
            placed(f"{path.name}, {name}", item["sentences"], "sentid"),
            lambda sentence: CaptionEntry(
                read_whole(sentence["sentid"]), image_id, read_text(sentence["raw"])
            ),
            found.rejected,
        )
        if split == "restval" and not restval:
            found.exclude("image", name, "in the split restval; restval is False")
            for each in sentences:
                found.exclude(
                    "caption", f"{each.caption_id} of {image_id}", "its image is excluded"
                )
            return None
        found.captions.extend(sentences)
        return ImageEntry(image_id, str(file), "train" if split == "restval" else split)

    records = placed(path.name, read_json(path, corpus, "images")["images"], "filename")
    found.images = [
        image for image in read_entries("image", records, read, found.rejected) if image is not None
    ]
    return found
