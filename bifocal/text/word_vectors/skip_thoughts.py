"""Converter for skip-thoughts' word table: a pickled object array and word list to a matrix and a word list."""

from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bifocal.text.word_vectors.array_pickle import read_array_pickle

BLOCK = 4096
"""Rows that are written at once."""


def convert_skip_thoughts(table: Path, dictionary: Path, target: Path) -> tuple[int, int]:
    """Write ``target`` (.npy) and its word list (.txt) for ``PretrainedWordVectors``; return their shape (V, K).

    ``table`` is ``utable.npy`` or ``btable.npy`` of Kiros et al., NIPS 2015; ``dictionary.txt`` has a word per line.
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
            f"{table} has {len(rows)} vectors of {sorted(dims)[:3]} dimensions, {dictionary} has {len(words)} words: "
            "expected one vector per word, all of one dimension"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    matrix = np.lib.format.open_memmap(target, "w+", np.float32, (len(rows), rows[0].size))
    remaining, start = iter(rows), 0
    while block := [row.ravel() for row in islice(remaining, BLOCK)]:
        matrix[start : start + len(block)] = block
        start += len(block)
    matrix.flush()
    # A carriage return would end the line of a word.
    target.with_suffix(".txt").write_bytes(b"".join(word.replace(b"\r", b" ") + b"\n" for word in words))
    return matrix.shape[0], matrix.shape[1]


def _read_rows(file: IO[bytes]) -> list[NDArray[Any]]:
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    if not dtype.hasobject:
        file.seek(0)
        return list(np.load(file, allow_pickle=False))
    rows = read_array_pickle(file)
    if shape != (len(rows),):
        raise ValueError(f"the header says {shape}, the pickle holds {len(rows)} vectors")
    return rows
