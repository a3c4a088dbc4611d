"""Published word vectors: word2vec binary and text, GloVe text, fastText .vec, a .npy table with its word list."""

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@dataclass
class WordFile:
    """What a file of word vectors has of the words asked for.

    Attributes:
        vectors: of the words found, each (K,).
        dim: K.
        duplicates: lines that repeat one of these words; the first counts, as in gensim.
        undecodable: words that are not UTF-8; no caption can have them.
    """

    vectors: dict[str, Vector]
    dim: int
    duplicates: int
    undecodable: int


def read_word_file(path: Path, words: Iterable[str]) -> WordFile:
    """The vectors of ``words`` in the file; the others are passed over, so that any size fits in memory.

    The suffix tells the format: ``.bin`` word2vec binary; ``.npy`` a table (V, K), beside it the words, one per line in
    a ``.txt`` of the same name; anything else is text: word2vec and fastText .vec (a first line with V and K), GloVe.

    Raises:
        FileNotFoundError: there is no such file, or no word list beside a table.
        ValueError: the file is cut off, a line has another dimension, or a value is no number; names the place.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; path names one of word vectors")
    wanted = {word.encode(): word for word in words}
    reader = {".bin": _binary, ".npy": _table}.get(path.suffix, _text)
    found = WordFile({}, 0, 0, 0)
    for raw, vector in reader(path, wanted):
        if vector is None:
            found.undecodable += not _is_utf8(raw)
        elif wanted[raw] in found.vectors:
            found.duplicates += 1
        else:
            found.vectors[wanted[raw]] = vector
            found.dim = len(vector)
            if not np.isfinite(vector).all():
                raise ValueError(f"{path}: the vector of {wanted[raw]!r} holds a value that is no finite number")
    return found


Entries = Iterator[tuple[bytes, Vector | None]]
"""Each word of a file, and its vector if it is wanted."""


def _text(path: Path, wanted: dict[bytes, str]) -> Entries:
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
            # From the right: GloVe has words with a space inside.
            word, *numbers = line.rstrip().rsplit(b" ", dim)
            if len(numbers) != dim or (_is_number(word.rpartition(b" ")[2]) and b" " in word):
                place = read + header
                raise ValueError(f"{path}, line {place}: {len(line.split()) - 1} values, expected {dim} as on line 1")
            yield word, _numbers(path, read + header, numbers) if word in wanted else None
    if count is not None and read != count:
        raise ValueError(f"{path} has {read} words, its first line says {count}: it is cut off, fetch it again")


def _binary(path: Path, wanted: dict[bytes, str]) -> Entries:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        count, dim = _header(path, file)
        start = file.tell()
        for number in range(count):
            space = pages.find(b" ", start)
            end = space + 1 + 4 * dim
            if space < 0 or end > len(pages):
                raise ValueError(f"{path} ends after {number} of {count} words: it is cut off, fetch it again")
            word = pages[start:space].lstrip(b"\n")
            yield word, np.frombuffer(pages[space + 1 : end], np.float32) if word in wanted else None
            start = end


def _table(path: Path, wanted: dict[bytes, str]) -> Entries:
    word_list = path.with_suffix(".txt")
    if not word_list.is_file():
        raise FileNotFoundError(f"{word_list}: no such file; it must hold the words of {path.name}, one per line")
    words = word_list.read_bytes().splitlines()
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path} is cut off, or no plain table but pickled objects: save an array (V, K)") from error
    if table.ndim != 2 or len(table) != len(words):
        raise ValueError(f"{path} is {table.shape}, {word_list.name} has {len(words)} words: expected one row for each")
    for word, row in zip(words, table, strict=True):
        yield word, np.asarray(row, np.float32) if word in wanted else None


def _header(path: Path, file: BinaryIO) -> tuple[int, int]:
    fields = file.readline(64).split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise ValueError(f"{path} begins with {fields[:2]!r}: a word2vec binary begins with its two sizes")
    return int(fields[0]), int(fields[1])


def _numbers(path: Path, line: int, numbers: list[bytes]) -> Vector:
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
