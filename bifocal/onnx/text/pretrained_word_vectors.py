"""Published word vectors: word2vec binary and text, GloVe text, fastText .vec, also as .gz, and a
.npy matrix with a word list."""

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from bifocal.onnx.text.captions import Vocabulary, ignored_arguments, tokenize
from bifocal.onnx.text.word_vectors import WordVectorizer, WordVectors

Vector = NDArray[np.float32]
Entries = Iterator[tuple[bytes, Vector | None]]
"""Each word of a file, with its vector if it is requested."""
BLOCK = 1 << 22
"""Bytes of a binary file that are read at a time."""
FASTTEXT = (793712314).to_bytes(4, "little")
"""First bytes of fastText's models, in place of the numbers of a word2vec binary."""
UNKNOWN_NAMES = ("<unk>", "UNK", "<UNK>")
"""Names of the vector of unknown words in published files."""


@dataclass
class WordVectorFile:
    """Vectors of the requested words in a file."""

    vectors: dict[str, Vector]  # (K,) of each requested word that the file has
    dim: int  # K
    duplicates: int  # repeated entries of requested words; the first entry counts, as in gensim
    undecodable: int  # words that are not UTF-8; no caption can contain them


def read_word_vectors(path: Path, words: Iterable[str]) -> WordVectorFile:
    """Read the vectors of ``words`` from word2vec ``.bin`` or text (GloVe, fastText's ``.vec``), as
    downloaded also with ``.gz``, or from ``.npy`` with a ``.txt`` of words."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected a file of word vectors")
    requested = {word.encode(): word for word in words}
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    read_entries = {".bin": _read_binary, ".npy": _read_matrix}.get(suffix, _read_text)
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
                raise ValueError(
                    f"{path}: the vector of {requested[raw]!r} has a value that is not a "
                    "finite number"
                )
    return file


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield cast(BinaryIO, file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: {error}: download it again") from error


def _read_text(path: Path, requested: dict[bytes, str]) -> Entries:
    with _open(path) as file:
        first = file.readline().split()
        header = len(first) == 2 and all(field.isdigit() for field in first)
        count, dim = (int(first[0]), int(first[1])) if header else (None, len(first) - 1)
        if dim < 1:
            raise ValueError(
                f"{path} begins with {first[:3]!r}: expected a word and its numbers on each line"
            )
        if not header:
            file.seek(0)
        read = 0
        for line in file:
            read += 1
            # Split from the right: GloVe has words that contain a space.
            word, *numbers = line.rstrip().rsplit(b" ", dim)
            if len(numbers) != dim or (_is_number(word.rpartition(b" ")[2]) and b" " in word):
                raise ValueError(
                    f"{path}, line {read + header}: {len(line.split()) - 1} values, expected "
                    f"{dim} as on line 1"
                )
            yield word, _parse_numbers(path, read + header, numbers) if word in requested else None
    if count is not None and read != count:
        raise ValueError(
            f"{path} has {read} words, its first line says {count}: it is truncated, download "
            "it again"
        )


def _read_binary(path: Path, requested: dict[bytes, str]) -> Entries:
    with _open(path) as file:
        count, dim = _read_header(path, file)
        read, start = b"", 0
        for number in range(count):
            while (space := read.find(b" ", start)) < 0 or space + 1 + 4 * dim > len(read):
                more = file.read(BLOCK)
                if not more:
                    raise ValueError(
                        f"{path} ends after {number} of {count} words: it is truncated, download "
                        "it again"
                    )
                read, start = read[start:] + more, 0
            # The original tool ends every vector with a newline.
            word, end = read[start:space].lstrip(b"\n"), space + 1 + 4 * dim
            yield word, np.frombuffer(read[space + 1 : end], "<f4") if word in requested else None
            start = end


def _read_matrix(path: Path, requested: dict[bytes, str]) -> Entries:
    word_list = path.with_suffix(".txt")
    if not word_list.is_file():
        raise FileNotFoundError(
            f"{word_list}: no such file; it must contain the words of {path.name}, one per line"
        )
    words = word_list.read_bytes().splitlines()
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(
            f"{path} is truncated or contains pickled objects: save an array (V, K)"
        ) from error
    if matrix.ndim != 2 or len(matrix) != len(words):
        raise ValueError(
            f"{path} is {matrix.shape}, {word_list.name} has {len(words)} words: expected one "
            "row per word"
        )
    for word, row in zip(words, matrix, strict=True):
        yield word, np.asarray(row, np.float32) if word in requested else None


def _read_header(path: Path, file: BinaryIO) -> tuple[int, int]:
    first = file.readline(64)
    if first.startswith(FASTTEXT):
        raise ValueError(f"{path} is a model of fastText: download the .vec.gz beside it")
    fields = first.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise ValueError(
            f"{path} begins with {fields[:2]!r}: a word2vec binary begins with the numbers V and K"
        )
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


@dataclass
class PretrainedWordVectors(WordVectorizer):
    """Token ids with word vectors of a file: word2vec ``.bin`` or text, GloVe, fastText, ``.npy``
    with a list of words.

    The vocabulary is the set of words that are in both the training captions (in lower case) and
    the file.

    Args:
        unknown: vector of other words: "vector", the file's vector ``<unk>`` or ``UNK``; "mean",
            the mean of the vectors; "bucket", one of ``buckets`` random vectors with the statistics
            of the file's vectors, chosen by a hash of the word.
        buckets: number of random vectors for unknown words.
        min_count: minimum number of occurrences of a word in the training captions.
        path: file of word vectors; required.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "glove.txt"
        >>> _ = path.write_text("a 1 0\\ndog 0 1\\n")
        >>> vectorizer = PretrainedWordVectors(path=path)
        >>> vectorizer.fit(["a dog", "a zebra"], seed=0)["words_without_vector"]
        1
        >>> vectorizer.transform(["a dog", "a zebra"]).values
        [array([2, 3], dtype=int32), array([2, 1], dtype=int32)]
    """

    unknown: Literal["vector", "mean", "bucket"] = "mean"
    buckets: int = 1000
    min_count: int = 1
    path: Path | str | None = None

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        if arguments.get("path") is None:
            yield "path is missing: set it to a file of word vectors"
        if arguments.get("unknown") != "bucket":
            yield from ignored_arguments(arguments, ["buckets"], "unless unknown is 'bucket'")

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Look up the words of ``captions`` in the file."""
        if self.path is None:
            raise ValueError("PretrainedWordVectors needs path: a file of word vectors")
        frequent = frequent_words(captions, self.min_count)
        # Files are in lower case, and words are folded: "straße" is "strasse".
        spellings = {word: word for word in frequent} | {
            token.lower(): "".join(tokenize(token))
            for caption in captions
            if not caption.isascii()
            for token in tokenize(caption, lower=False)
        }
        file = read_word_vectors(Path(self.path), [*spellings, *UNKNOWN_NAMES])
        found = {
            word: file.vectors[spelled]
            for spelled, word in spellings.items()
            if spelled in file.vectors
        }
        words = [word for word in frequent if word in found]
        if not words:
            raise ValueError(
                f"{self.path} has none of the {len(frequent)} words of the captions: check the "
                "language of the file"
            )
        vectors = np.stack([found[word] for word in words])
        rows = [
            np.zeros((1, file.dim), np.float32),
            self._unknown_vector(file, vectors)[None],
            vectors,
        ]
        buckets = self.buckets if self.unknown == "bucket" else 0
        if buckets:
            generator = np.random.default_rng(seed)
            noise = generator.standard_normal((buckets, file.dim), np.float32)
            rows.append(vectors.mean(axis=0) + vectors.std(axis=0) * noise)
        self.word_vectors = WordVectors(Vocabulary(words, buckets), np.concatenate(rows))
        return {
            "words": len(words),
            "words_without_vector": len(frequent) - len(words),
            "duplicate_words": file.duplicates,
            "undecodable_words": file.undecodable,
        }

    def _unknown_vector(self, file: WordVectorFile, vectors: Vector) -> Vector:
        if self.unknown != "vector":
            mean: Vector = vectors.mean(axis=0)
            return mean
        for name in UNKNOWN_NAMES:
            if name in file.vectors:
                return file.vectors[name]
        raise ValueError(
            f"{self.path} has no vector for unknown words, named {', '.join(UNKNOWN_NAMES)}: "
            "set unknown to 'mean' or 'bucket'"
        )


def frequent_words(captions: Sequence[str], min_count: int) -> list[str]:
    """Return words that occur at least ``min_count`` times, most frequent first, ties in
    alphabetical order."""
    counts = Counter(token for caption in captions for token in tokenize(caption))
    return sorted(
        (word for word, count in counts.items() if count >= min_count),
        key=lambda word: (-counts[word], word),
    )
