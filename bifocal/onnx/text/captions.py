"""Captions as words and as arrays: one rule for the words of all texts, ids of a vocabulary, padded
batches, and the base of the vectorizers without torch."""

import json
import re
import unicodedata
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bifocal.onnx.files import read_json, read_whole

FormatName = Literal["tokens", "vectors", "contextual", "sparse"]
Array = NDArray[Any]

DTYPES: dict[FormatName, type[np.generic]] = {
    "tokens": np.int32,
    "vectors": np.float32,
    "contextual": np.float16,
    "sparse": np.float32,
}
PADDING = "<pad>"
UNKNOWN = "<unk>"
MAX_TOKENS = 100
"""Longer captions are truncated to this number of tokens, and counted."""
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING_SYMBOL = 256, 257, 258, 259, 260
SYMBOLS = 261
"""Size of the alphabet: bytes of UTF-8 and the five special symbols."""


_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uaa60-\uaa7f\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, kana and Chinese characters: scripts without spaces between words."""
_MARKS = "".join(
    chr(code)
    for block in (range(0x0E00, 0x10A0), range(0x1780, 0x1800), range(0x3099, 0x309B))
    for code in block
    if unicodedata.category(chr(code))[0] == "M"
)
_LETTER = re.compile(f"(?![{_MARKS}])[{_UNSPACED}][{_MARKS}]*")
_RUN = re.compile(f"(?:{_LETTER.pattern})+")
_OTHER = r"[^\w\s\x00-\x7f\u2190-\u2bff\U0001f000-\U0001ffff]"
_MANY_MARKS = re.compile(f"({_OTHER}{{30}}){_OTHER}+")
"""Signs after the first 30, which no language has (UAX 15, stream-safe text): the time to compose a
letter and its marks grows with the square of their number."""
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]{2}")
_EDGE = re.compile(r"['-](?:(?![^\s'-])|(?<![^\s'-]['-]))")
"""A hyphen or an apostrophe that is not between two letters."""
_PIECE = re.compile(r"\d+|\D+")
MAX_PIECES = 3
"""Runs of letters and of digits of a word that are parts of it: a hash has more, and no part."""
_SYLLABLES = re.compile("[\uac00-\ud7a3]{2,}")
_ASCII = {
    code: sign if sign.isalnum() or sign in "'-\n" else " "
    for code, sign in enumerate(map(chr, range(128)))
}


class _Signs(dict[int, str]):
    """Table of ``str.translate``: letters, marks and digits stay, an emoji is a word of its own."""

    def __missing__(self, code: int) -> str:
        sign, category = chr(code), unicodedata.category(chr(code))
        if category == "Cf" or 0xFE00 <= code < 0xFE10 or 0x1F3FB <= code < 0x1F400:
            kept = ""  # soft hyphens, joiners, and the selectors and skin tones of emoji
        elif category[0] in "LMN" or 0x1F1E6 <= code < 0x1F200:
            kept = sign
        else:
            is_emoji = category == "So" and code >= 0x2300 and not 0x2500 <= code < 0x25A0
            kept = f" {sign} " if is_emoji else " "
        self[code] = kept
        return kept


_signs = _Signs(_ASCII | {0x2019: "'", 0x2010: "-"})


def check_texts(texts: Sequence[object]) -> None:
    """Raise ``TypeError`` for the first value that is not a text, ``ValueError`` for one that is
    not UTF-8."""
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise TypeError(f"sentence {number} of {len(texts)} is {text!r}, expected a text")
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            raise ValueError(f"{text[:80]!r} is not UTF-8: write the sentence in UTF-8")


def tokenize(text: str, lower: bool = True) -> list[str]:
    """Return the words in ``text`` in order: runs of letters, marks and digits, and emoji.

    Unicode compatibility forms are unified (NFKC). Apostrophes and hyphens inside a word are kept,
    all other signs are removed. Scripts without spaces between words give pairs of letters.

    Args:
        lower: fold the case, so that "STRASSE" and "Straße" are one word.

    >>> tokenize("A man's T-shirt, 2 cafés & 犬が走る!")
    ['a', "man's", 't-shirt', '2', 'cafés', '犬が', 'が走', '走る']
    """
    return spaced(text, lower).split()


def spaced(text: str, lower: bool = True) -> str:
    """Return ``text`` with spaces between its words and no other signs; its lines stay lines."""
    if text.isascii():
        text = text.translate(_ASCII)
        return _EDGE.sub(" ", text.lower() if lower else text)
    text = unicodedata.normalize("NFKC", _MANY_MARKS.sub(r"\1", text))
    if lower:
        text = unicodedata.normalize("NFKC", text.casefold())
    text = _FLAG.sub(r" \g<0> ", text.translate(_signs))
    return _EDGE.sub(" ", _RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text))


def _pairs(run: str) -> list[str]:
    letters = _LETTER.findall(run)
    return [a + b for a, b in pairwise(letters)] or [run]


@cache
def _is_accent(mark: str) -> bool:
    # Vowel signs of Indic scripts have the class 0, of Thai and Lao 103 to 122: they tell words
    # apart.
    kind = unicodedata.combining(mark)
    return 10 <= kind <= 35 or kind >= 200


def parts(word: str) -> set[str]:
    """Return other words by which a word is found: without accents, its pieces between hyphens and
    between letters and digits, letters of scripts without spaces, and pairs of Korean syllables.

    >>> sorted(parts("crème-brûlée")), sorted(parts("img1234")), sorted(parts("dog"))
    (['brulee', 'brûlée', 'creme', 'crème', 'creme-brulee', 'crèmebrûlée'], ['1234', 'img'], [])
    """
    if word.isascii() and word.isalpha():
        return set()
    pieces = re.split("['-]", word)
    found = {*pieces, "".join(pieces), *_LETTER.findall(word)}
    for piece in pieces:
        if len(runs := _PIECE.findall(piece)) <= MAX_PIECES:
            found.update(runs)
    for syllables in _SYLLABLES.findall(word):
        found.update(a + b for a, b in pairwise(syllables))
    for known in (word, *pieces):
        plain = "".join(
            sign for sign in unicodedata.normalize("NFD", known) if not _is_accent(sign)
        )
        found.add(unicodedata.normalize("NFC", plain))
    return found - {word, ""}


def unknown_words(known: Mapping[str, bool] | None, sentence: str) -> list[str]:
    """Return the words that are not known; raise ``ValueError`` if none is. None knows all."""
    if known is None:
        return []
    if not any(known.values()):
        raise ValueError(
            f"the model knows none of the words of {sentence[:80]!r}: use words of its captions"
        )
    return [word for word, is_known in known.items() if not is_known]


@dataclass(frozen=True)
class TextFormat:
    """Format of the captions of a text.

    Attributes:
        name: "tokens", "vectors", "contextual" or "sparse".
        dim: K, input dimension of the text encoder.
        layers: L of contextual vectors; 1 for other formats.
    """

    name: FormatName
    dim: int
    layers: int = 1


@dataclass
class EncodedCaptions:
    """Captions as flat arrays, one per caption, with the dtype of their format."""

    values: list[
        Array
    ]  # token ids (T,), a vector (K,), layers (L T K,), or a sparse vector's non-zero values
    indices: list[Array] | None = None  # int32, ascending positions of the values; only "sparse"
    counts: dict[str, int] = field(
        default_factory=dict
    )  # tokens, unknown tokens, empty and truncated captions


class NumpyVectorizer(ABC):
    """A vectorizer that needs neither torch nor SciPy once it is fitted, so that exported models
    contain it."""

    @property
    @abstractmethod
    def format(self) -> TextFormat:
        """Format of the encoded captions; known after ``fit`` or ``load``."""

    @abstractmethod
    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Encode captions."""

    @abstractmethod
    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        """Return whether each token of a sentence is known. Stop words are left out."""

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return the inputs of the text encoder for B sentences; see ``pad_captions``."""
        encoded = self.transform(sentences)
        return pad_captions(self.format, encoded.values, encoded.indices)


def pad_captions(
    text_format: TextFormat, values: Sequence[Array], indices: Sequence[Array] | None = None
) -> tuple[Array, Array]:
    """Return the values of B captions, padded to the longest caption, and their lengths (B,); see
    ``TextBatch``."""
    if text_format.name == "tokens":
        return pad_ids(values)
    if text_format.name == "contextual":
        return _pad_layers(text_format, values)
    vectors = np.zeros((len(values), text_format.dim), dtype=np.float32)
    for row, row_values in enumerate(values):
        vectors[row, slice(None) if indices is None else indices[row]] = row_values
    return vectors, np.ones(len(values), dtype=np.int64)


def pad_ids(rows: Sequence[Array], width: int = 0, padding: int = 0) -> tuple[Array, Array]:
    """Return rows of ids as (B, T) int64, padded to the longest one, or to ``width``, and their
    lengths (B,) int64."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.full((len(rows), int(lengths.max(initial=width))), padding, dtype=np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    return ids, lengths


def _pad_layers(text_format: TextFormat, values: Sequence[Array]) -> tuple[Array, Array]:
    layers, dim = text_format.layers, text_format.dim
    lengths = np.array([len(row) // (layers * dim) for row in values], dtype=np.int64)
    padded = np.zeros((len(values), layers, int(lengths.max(initial=0)), dim), dtype=np.float32)
    for row, row_values in enumerate(values):
        padded[row, :, : lengths[row]] = row_values.reshape(layers, lengths[row], dim)
    return padded, lengths


def ignored_arguments(
    arguments: Mapping[str, Any], ignored: Iterable[str], reason: str
) -> Iterator[str]:
    """Yield one message for each of ``ignored`` that is in ``arguments``."""
    for name in ignored:
        if name in arguments:
            yield f"{name} {arguments[name]!r} has no effect {reason}: leave it out"


class Vocabulary:
    """Ids of words: 0 is padding, 1 is ``<unk>``, then ``words`` in their order, then the buckets.

    Args:
        words: words without the two special ones, each once.
        buckets: number of ids for unknown words; a hash of the word chooses one. With 0, unknown
            words are ``<unk>``.

    Raises:
        ValueError: a word is repeated.

    Example:
        >>> Vocabulary(["dog", "cat"]).encode(["cat", "zebra"])
        [3, 1]
    """

    FILE = "vocabulary.json"

    def __init__(self, words: Iterable[str], buckets: int = 0) -> None:
        self.words = [PADDING, UNKNOWN, *words]
        self.buckets = buckets
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            repeated = next(
                word for index, word in enumerate(self.words) if self._ids[word] != index
            )
            raise ValueError(
                f"word {repeated!r} is repeated; {PADDING} and {UNKNOWN} are added by the "
                "vocabulary"
            )
        for index, word in enumerate(self.words):  # older files are in lower case, not folded
            self._ids.setdefault(word.casefold(), index)

    def __len__(self) -> int:
        return len(self.words) + self.buckets

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Return the id of each token."""
        return [
            self._ids[token] if token in self._ids else self._unknown_id(token) for token in tokens
        ]

    def encode_captions(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the token ids of each caption, at most ``MAX_TOKENS``; an empty caption is one
        ``<unk>``."""
        counts = {"tokens": 0, "unknown_tokens": 0, "empty_captions": 0, "truncated_captions": 0}
        values = []
        for caption in captions:
            tokens = tokenize(caption)
            counts["empty_captions"] += not tokens
            counts["truncated_captions"] += len(tokens) > MAX_TOKENS
            tokens = tokens[:MAX_TOKENS]
            counts["tokens"] += len(tokens)
            counts["unknown_tokens"] += sum(token not in self for token in tokens)
            values.append(np.array(self.encode(tokens or [UNKNOWN]), dtype=np.int32))
        return EncodedCaptions(values, counts=counts)

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return the token ids (B, T) int64 of B sentences, padded with 0, and their lengths
        (B,)."""
        return pad_ids(self.encode_captions(sentences).values)

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        """Return whether each token has an id other than ``<unk>``."""
        return {token: token in self or self.buckets > 0 for token in tokens}

    def save(self, path: Path) -> None:
        """Write JSON: ``words``, in the order of their ids, and ``buckets``."""
        content = {"words": self.words, "buckets": self.buckets}
        path.write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        content = read_json(path)
        if content.get("words", [])[:2] != [PADDING, UNKNOWN]:
            raise ValueError(
                f"{path} is not a vocabulary: 'words' must begin with {PADDING!r}, {UNKNOWN!r}"
            )
        return read_whole(path, lambda _: cls(content["words"][2:], content["buckets"]))

    def _unknown_id(self, token: str) -> int:
        if not self.buckets or token == UNKNOWN:
            return 1
        # crc32, because hash() of a string differs between processes.
        return len(self.words) + zlib.crc32(token.encode()) % self.buckets


def spell(token: str | int, length: int) -> list[int]:
    """Return the symbols of a word, or of a sentence boundary, truncated and padded to
    ``length``."""
    letters = [token] if isinstance(token, int) else list(token.encode()[: length - 2])
    symbols = [BEGIN_WORD, *letters, END_WORD]
    return symbols + [PADDING_SYMBOL] * (length - len(symbols))


def spell_sentences(
    sentences: Sequence[Sequence[str]], length: int
) -> tuple[NDArray[np.int64], ...]:
    """Return symbols (N, length) of different words, their rows as words (T, B), and lengths (B,),
    with boundaries."""
    marked: list[list[str | int]] = [
        [BEGIN_SENTENCE, *sentence, END_SENTENCE] for sentence in sentences
    ]
    rows = {
        word: row
        for row, word in enumerate(dict.fromkeys(word for line in marked for word in line))
    }
    lengths = np.array([len(line) for line in marked], dtype=np.int64)
    words = np.zeros((int(lengths.max()), len(marked)), dtype=np.int64)
    for column, line in enumerate(marked):
        words[: len(line), column] = [rows[word] for word in line]
    return np.array([spell(word, length) for word in rows], dtype=np.int64), words, lengths
