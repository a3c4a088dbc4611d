"""Published word vectors: word2vec binary and text, GloVe text, fastText .vec, and a .npy matrix with a word list."""

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@dataclass
class WordVectorFile:
    """Vectors of the requested words in a file."""

    vectors: dict[str, Vector]  # (K,) of each requested word that the file has
    dim: int  # K
    duplicates: int  # repeated entries of requested words; the first entry counts, as in gensim
    undecodable: int  # words that are not UTF-8; no caption can contain them


def read_word_vectors(path: Path, words: Iterable[str]) -> WordVectorFile:
    """Read the vectors of ``words`` from word2vec ``.bin``, ``.npy`` with a ``.txt`` of words, or text (GloVe)."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected a file of word vectors")
    requested = {word.encode(): word for word in words}
    read_entries = {".bin": _read_binary, ".npy": _read_matrix}.get(path.suffix, _read_text)
    file = WordVectorFile({}, 0, 0, 0)
    for raw, vector in read_entries(path, requested):
        if vector is None:
            file.undecodable += not _is_utf8(raw)
        elif requested[raw] in file.vectors:
            file.duplicates += 1
        else:
            file.vectors[requested[raw]] = vector
            file.dim = len(vector)
            if not np.isfinite(vector).all():
                raise ValueError(f"{path}: the vector of {requested[raw]!r} has a value that is not a finite number")
    return file


Entries = Iterator[tuple[bytes, Vector | None]]
"""Each word of a file, with its vector if it is requested."""


def _read_text(path: Path, requested: dict[bytes, str]) -> Entries:
    with path.open("rb") as file:
        first = file.readline().split()
        header = len(first) == 2 and all(field.isdigit() for field in first)
        count, dim = (int(first[0]), int(first[1])) if header else (None, len(first) - 1)
        if dim < 1:
            raise ValueError(f"{path} begins with {first[:3]!r}: expected a word and its numbers on each line")
        if not header:
            file.seek(0)
        read = 0
        for line in file:
            read += 1
            # Split from the right: GloVe has words that contain a space.
            word, *numbers = line.rstrip().rsplit(b" ", dim)
            if len(numbers) != dim or (_is_number(word.rpartition(b" ")[2]) and b" " in word):
                raise ValueError(
                    f"{path}, line {read + header}: {len(line.split()) - 1} values, expected {dim} as on line 1"
                )
            yield word, _parse_numbers(path, read + header, numbers) if word in requested else None
    if count is not None and read != count:
        raise ValueError(f"{path} has {read} words, its first line says {count}: it is truncated, download it again")


def _read_binary(path: Path, requested: dict[bytes, str]) -> Entries:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        count, dim = _read_header(path, file)
        start = file.tell()
        for number in range(count):
            space = pages.find(b" ", start)
            end = space + 1 + 4 * dim
            if space < 0 or end > len(pages):
                raise ValueError(f"{path} ends after {number} of {count} words: it is truncated, download it again")
            # The original tool ends every vector with a newline.
            word = pages[start:space].lstrip(b"\n")
            yield word, np.frombuffer(pages[space + 1 : end], np.float32) if word in requested else None
            start = end


def _read_matrix(path: Path, requested: dict[bytes, str]) -> Entries:
    word_list = path.with_suffix(".txt")
    if not word_list.is_file():
        raise FileNotFoundError(f"{word_list}: no such file; it must contain the words of {path.name}, one per line")
    words = word_list.read_bytes().splitlines()
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path} is truncated or contains pickled objects: save an array (V, K)") from error
    if matrix.ndim != 2 or len(matrix) != len(words):
        raise ValueError(
            f"{path} is {matrix.shape}, {word_list.name} has {len(words)} words: expected one row per word"
        )
    for word, row in zip(words, matrix, strict=True):
        yield word, np.asarray(row, np.float32) if word in requested else None


def _read_header(path: Path, file: BinaryIO) -> tuple[int, int]:
    fields = file.readline(64).split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise ValueError(f"{path} begins with {fields[:2]!r}: a word2vec binary begins with the numbers V and K")
    return int(fields[0]), int(fields[1])


def _parse_numbers(path: Path, line: int, numbers: list[bytes]) -> Vector:
    try:
        return np.array([float(number) for number in numbers], np.float32)
    except ValueError as error:
        raise ValueError(f"{path}, line {line}: {error}") from error


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _is_utf8(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True
