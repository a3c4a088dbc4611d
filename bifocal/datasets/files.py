"""Files of a corpus: checked folders, text files and JSON files, with errors that name the corpus and the file."""

import json
from pathlib import Path
from typing import Any


def require_root(root: Path | str | None, corpus: str, files: str) -> Path:
    """Return the root folder of a corpus that reads files.

    Args:
        corpus: name of the reader, for the message.
        files: files and folders that the root must contain, for the message.

    Raises:
        ValueError: ``root`` is None or is not a folder.
    """
    if root is None:
        raise ValueError(f"{corpus} needs root: the folder with {files}")
    if not Path(root).is_dir():
        raise ValueError(f"{corpus}: root {str(root)!r} is not a folder; it must contain {files}")
    return Path(root)


def read_lines(path: Path, corpus: str) -> list[str]:
    """Return the lines of a UTF-8 text file, including empty lines.

    Raises:
        ValueError: the file is missing or is not UTF-8.
    """
    if not path.is_file():
        raise ValueError(f"{corpus} needs {path}: no such file")
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error


def read_json(path: Path, corpus: str, *keys: str) -> dict[str, Any]:
    """Return the object in a JSON file, which must have a list under each of ``keys``.

    Raises:
        ValueError: the file is missing or is not JSON, or a list is missing.
    """
    value = _parse_json(path, corpus)
    for key in keys:
        if not (isinstance(value, dict) and isinstance(value.get(key), list)):
            raise ValueError(f"{path}: expected an object with a list {key!r}")
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object, got {type(value).__name__}")
    return dict(value)


def read_json_list(path: Path, corpus: str) -> list[Any]:
    """Return the list in a JSON file.

    Raises:
        ValueError: the file is missing, is not JSON or is not a list.
    """
    value = _parse_json(path, corpus)
    if not isinstance(value, list):
        raise ValueError(f"{path}: expected a list, got {type(value).__name__}")
    return value


def _parse_json(path: Path, corpus: str) -> Any:
    if not path.is_file():
        raise ValueError(f"{corpus} needs {path}: no such file")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
