"""Converter for skip-thoughts' word table: a pickled object array and word list to a matrix and a
word list."""

from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bifocal.durable.pickles import RefusedPickleError, read_pickle

NUMBERS = ("f2", "f4", "f8")
"""Types of the numbers that an array may hold; "O" holds a list of arrays."""
BLOCK = 4096
"""Rows that are written at once."""


class _Type:
    """A data type. NumPy's own takes flags from a pickle that break the memory of its arrays."""

    def __init__(self, kind: str, *_: Any) -> None:
        self.kind, self.order = kind, "="

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]


class _Array:
    """An array: its numbers, or the list of its objects."""

    def __init__(self, *_: Any) -> None:
        self.values: NDArray[Any] | list[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        self.values = _values(shape, kind, bool(fortran), data)


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise RefusedPickleError(f"the pickle names the encoding {encoding!r}, which is refused")
    return text.encode("latin-1")


NAMES = {
    **{f"numpy.{core}.multiarray._reconstruct": _Array for core in ("core", "_core")},
    "numpy.ndarray": None,
    "numpy.dtype": _Type,
    "_codecs.encode": _encode,
}
"""What stands for the names in a pickle of arrays."""


def read_array_pickle(file: IO[bytes]) -> list[NDArray[Any]]:
    """Return the number arrays in a pickled NumPy object array, without running code from the
    file."""
    result = read_pickle(file, NAMES)
    if not isinstance(result, _Array) or not isinstance(result.values, list):
        raise ValueError("the pickle holds no array of objects")
    rows = [row.values for row in result.values if isinstance(row, _Array)]
    arrays = [row for row in rows if isinstance(row, np.ndarray)]
    if len(arrays) != len(result.values):
        raise ValueError("the pickled array holds other objects than arrays of numbers")
    return arrays


def _values(shape: Any, kind: _Type, fortran: bool, data: Any) -> NDArray[Any] | list[Any]:
    count = int(np.prod(shape, dtype=object))
    if kind.kind in ("O", "O4", "O8"):
        if type(data) is not list or len(shape) != 1 or len(data) != count:
            raise RefusedPickleError(
                f"the pickle is damaged: an array of {count} objects has other contents"
            )
        return data
    if kind.kind not in NUMBERS or kind.order not in ("<", ">", "=", "|"):
        raise RefusedPickleError(
            f"the pickle has an array of type {kind.kind!r}, expected one of {', '.join(NUMBERS)}"
        )
    raw = data.encode("latin-1") if isinstance(data, str) else data
    dtype = np.dtype(kind.order.replace("|", "=") + kind.kind)
    if (
        not isinstance(raw, bytes)
        or len(raw) != count * dtype.itemsize
        or min(shape, default=0) < 0
    ):
        raise RefusedPickleError(
            f"the pickle is damaged: an array of shape {shape} has other contents"
        )
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


def convert_skip_thoughts(table: Path, dictionary: Path, target: Path) -> tuple[int, int]:
    """Write ``target`` (.npy) and its word list (.txt) for ``PretrainedWordVectors``; return their
    shape (V, K).

    ``table`` is ``utable.npy`` or ``btable.npy`` of Kiros et al., NIPS 2015; ``dictionary.txt`` has
    a word per line.
    """
    if target.suffix != ".npy":
        raise ValueError(f"{target} must end with .npy: its words are written beside it as .txt")
    words = [line.strip() for line in dictionary.read_bytes().split(b"\n")]
    if words and not words[-1]:
        words.pop()
    with table.open("rb") as file:
        try:
            rows = _read_rows(file)
        except ValueError as error:
            raise ValueError(f"{table}: {error}") from error
    dims = {row.size for row in rows}
    if len(rows) != len(words) or len(dims) != 1:
        raise ValueError(
            f"{table} has {len(rows)} vectors of {sorted(dims)[:3]} dimensions, {dictionary} "
            f"has {len(words)} words: expected one vector per word, all of one dimension"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    matrix = np.lib.format.open_memmap(target, "w+", np.float32, (len(rows), rows[0].size))
    remaining, start = iter(rows), 0
    while block := [row.ravel() for row in islice(remaining, BLOCK)]:
        matrix[start : start + len(block)] = block
        start += len(block)
    matrix.flush()
    # A carriage return would end the line of a word.
    target.with_suffix(".txt").write_bytes(
        b"".join(word.replace(b"\r", b" ") + b"\n" for word in words)
    )
    return matrix.shape[0], matrix.shape[1]


def _read_rows(file: IO[bytes]) -> list[NDArray[Any]]:
    version = np.lib.format.read_magic(file)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(file)
    if not dtype.hasobject:
        file.seek(0)
        return list(np.load(file, allow_pickle=False))
    rows = read_array_pickle(file)
    if shape != (len(rows),):
        raise ValueError(f"the header says {shape}, the pickle holds {len(rows)} vectors")
    return rows
