"""Words of a caption: tokens, ids of a vocabulary, and the symbols that spell them for ELMo."""

import json
import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bifocal.onnx.files import read_json, read_whole
from bifocal.onnx.text.captions import Array, EncodedCaptions, pad_ids

PADDING = "<pad>"
UNKNOWN = "<unk>"
MAX_TOKENS = 100
"""Longer captions are truncated to this number of tokens, and counted."""

_WORD = re.compile(r"[^\s'-]+(?:['-][^\s'-]+)*")
_ASCII = {code: chr(code) if chr(code).isalnum() or chr(code) in "'-" else " " for code in range(128)} | {0x2019: "'"}


def tokenize(text: str, lower: bool = True) -> list[str]:
    """Return the words in ``text`` in order: runs of letters, marks and digits in any script.

    Unicode compatibility forms are unified (NFKC). Apostrophes and hyphens inside a word are kept, all other signs are
    removed. Scripts without spaces between words give one token per run.

    Args:
        lower: convert to lower case.

    >>> tokenize("A man's T-shirt, 2 cafés & 犬が走る!")
    ['a', "man's", 't-shirt', '2', 'cafés', '犬が走る']
    """
    text = unicodedata.normalize("NFKC", text).translate(_ASCII)
    if lower:
        text = text.lower()
    if not text.isascii():
        text = "".join(sign if sign in "'-" or unicodedata.category(sign)[0] in "LMN" else " " for sign in text)
    return _WORD.findall(text)


class Vocabulary:
    """Ids of words: 0 is padding, 1 is ``<unk>``, then ``words`` in their order, then the buckets.

    Args:
        words: words without the two special ones, each once.
        buckets: number of ids for unknown words; a hash of the word chooses one. With 0, unknown words are ``<unk>``.

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
            repeated = next(word for index, word in enumerate(self.words) if self._ids[word] != index)
            raise ValueError(f"word {repeated!r} is repeated; {PADDING} and {UNKNOWN} are added by the vocabulary")

    def __len__(self) -> int:
        return len(self.words) + self.buckets

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Return the id of each token."""
        return [self._ids[token] if token in self._ids else self._unknown_id(token) for token in tokens]

    def encode_captions(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the token ids of each caption, at most ``MAX_TOKENS``; an empty caption is one ``<unk>``."""
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
        """Return the token ids (B, T) int64 of B sentences, padded with 0, and their lengths (B,)."""
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
        if not isinstance(content, dict) or content.get("words", [])[:2] != [PADDING, UNKNOWN]:
            raise ValueError(f"{path} is not a vocabulary: 'words' must begin with {PADDING!r}, {UNKNOWN!r}")
        return read_whole(path, lambda _: cls(content["words"][2:], content["buckets"]))

    def _unknown_id(self, token: str) -> int:
        if not self.buckets or token == UNKNOWN:
            return 1
        # crc32, because hash() of a string differs between processes.
        return len(self.words) + zlib.crc32(token.encode()) % self.buckets


BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING_SYMBOL = 256, 257, 258, 259, 260
SYMBOLS = 261
"""Size of the alphabet: bytes of UTF-8 and the five special symbols."""


def spell(token: str | int, length: int) -> list[int]:
    """Return the symbols of a word, or of a sentence boundary, truncated and padded to ``length``."""
    letters = [token] if isinstance(token, int) else list(token.encode()[: length - 2])
    symbols = [BEGIN_WORD, *letters, END_WORD]
    return symbols + [PADDING_SYMBOL] * (length - len(symbols))


def spell_sentences(sentences: Sequence[Sequence[str]], length: int) -> tuple[NDArray[np.int64], ...]:
    """Return symbols (N, length) of different words, their rows as words (T, B), and lengths (B,), with boundaries."""
    marked: list[list[str | int]] = [[BEGIN_SENTENCE, *sentence, END_SENTENCE] for sentence in sentences]
    rows = {word: row for row, word in enumerate(dict.fromkeys(word for line in marked for word in line))}
    lengths = np.array([len(line) for line in marked], dtype=np.int64)
    words = np.zeros((int(lengths.max()), len(marked)), dtype=np.int64)
    for column, line in enumerate(marked):
        words[: len(line), column] = [rows[word] for word in line]
    return np.array([spell(word, length) for word in rows], dtype=np.int64), words, lengths
