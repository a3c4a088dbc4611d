"""Words and their ids."""

import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from bifocal.onnx.damage import read_json, read_whole
from bifocal.onnx.text.tokens import PADDING, UNKNOWN


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
