"""Files of an exported model: their hash, by which vectors belong to a model, and one error for a
damaged file."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from io import BufferedReader
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

CONTRASTIVE = "contrastive.json"
"""File beside graphs of heads above a contrastive model, with its weights."""
REPORTS = frozenset(
    {CONTRASTIVE, "manifest.json", "fingerprint.json", "parity.csv", "quantization.json"}
)
"""Files beside the graphs that have no effect on a vector."""
POINTING = "pointing/"
"""Folder of the pointing head, which has no effect on a vector."""
T = TypeVar("T")


def model_hash(directory: Path) -> str:
    """Return the SHA-256 of the names and contents of an exported model's files."""
    if not any(directory.rglob("*.onnx")):
        raise FileNotFoundError(f"{directory} holds no exported model: it has no graph *.onnx")
    files: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and _counts(name):
            with path.open("rb") as file:
                files[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hash_of_files(files)


def hash_of_files(files: Mapping[str, str]) -> str:
    """Return the hash of an exported model, see ``model_hash``, from the SHA-256 of each file by
    name."""
    counted = {name: digest for name, digest in files.items() if _counts(name)}
    # The bytes of ``bifocal.durable.json_digest``: registered models contain only this package.
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()


def _counts(name: str) -> bool:
    return name not in REPORTS and not name.startswith(POINTING)


class DamagedFileError(ValueError):
    """A file does not have what its program wrote."""


class UnsupportedError(ValueError):
    """A file is whole, and asks for what this version does not do."""


def read_whole(file: Path, read: Callable[[Path], T]) -> T:
    """Return ``read(file)`` of a file or folder; ``DamagedFileError`` with its name if it cannot be
    read."""
    try:
        _check_kind(file)
        return read(file)
    except (FileNotFoundError, DamagedFileError, UnsupportedError, KeyboardInterrupt):
        raise
    except BaseException as error:  # NumPy, Arrow, faiss and JSON have own classes, Rust has panics
        reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
        hint = "copy it again, or run the command that writes it"
        raise DamagedFileError(f"{file} is damaged ({reason}): {hint}") from error


class UnreadableError(ValueError):
    """A file that cannot be read now: it may be whole."""


def open_regular(file: Path | Callable[[], BufferedReader], most: int) -> BufferedReader:
    """Open a regular file of at most ``most`` bytes, by its path or a function; ``ValueError`` for
    others: a pipe or a device has no end."""
    try:
        if isinstance(file, Path):
            _check_kind(file)
        opened = file.open("rb") if isinstance(file, Path) else file()
    except (OSError, ValueError) as error:  # such as a link that leads out of its folder
        raise UnreadableError(getattr(error, "strerror", None) or str(error)) from error
    if (size := os.fstat(opened.fileno()).st_size) <= most:
        return opened
    opened.close()
    raise ValueError(f"too large: a file of {size} bytes, at most {most} are accepted")


def _check_kind(file: Path) -> None:
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise ValueError("a named pipe or a device, expected a file")


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; ``ValueError`` for any other text, also a too deep or too
    large one."""
    try:
        return json.loads(text)
    except (RecursionError, MemoryError) as error:
        raise ValueError(str(error) or "too large for the memory") from error


def read_json(file: Path) -> Any:
    """Return the object of a JSON file; see ``typed`` for its form."""

    def read(path: Path) -> dict[str, Any]:
        content = parse_json(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
        return content

    return read_whole(file, read)


def typed(form: Any, value: Any, name: str = "it") -> Any:
    """Return a value of JSON in a form: a dataclass, a union, a collection, or a type of JSON.

    What opens a model or a collection calls it, and builds all that it needs later, within
    ``read_whole``: another form is one error, and nothing fails later.

    Raises:
        ValueError: the value, which the error calls ``name``, has another form.
        KeyError, TypeError: a dataclass has no such key, or misses one.
    """
    kind, inner = get_origin(form) or form, get_args(form)
    if isinstance(value, dict) and is_dataclass(kind):
        fields = kind.__dataclass_fields__
        return form(**{key: typed(fields[key].type, entry, key) for key, entry in value.items()})
    if isinstance(value, list) and kind in (list, tuple):
        return kind(typed(inner[0], entry, name) for entry in value)
    for option in inner if kind is UnionType else ():
        with suppress(ValueError):
            return typed(option, value, name)
    types = (int, float) if kind is float else (kind,)
    if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} is {str(value)[:80]!r}, expected {form}")
    return value


def read_versioned(file: Path, content: str, version: int, hint: str) -> dict[str, Any]:
    """Return the object of the JSON file that describes a folder, without its schema version; the
    errors name the folder's ``content``, and the ``hint``."""
    if not file.is_file():
        raise FileNotFoundError(f"{file.parent} holds no {content} (it has no {file.name}): {hint}")
    values: dict[str, Any] = read_json(file)
    found = values.pop("schema_version", None)
    if found != version:
        raise ValueError(f"{file} has schema version {found}, expected {version}: {hint}")
    return values


def read_array(file: Path, mmap_mode: Literal["r"] | None = None) -> NDArray[Any]:
    """Return the array of a file of NumPy."""

    def read(path: Path) -> NDArray[Any]:
        if not path.is_file():
            raise ValueError("it is missing")
        array = np.load(path, mmap_mode=mmap_mode)
        if not isinstance(array, np.ndarray):
            raise ValueError("an archive, expected one array")
        return array

    return read_whole(file, read)
