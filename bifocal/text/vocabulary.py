"""Words and their numbers."""

import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from bifocal.text.tokens import PADDING, UNKNOWN


class Vocabulary:
    """Ids of words: 0 is padding, 1 is ``<unk>``, then ``words`` in their order, then the buckets.

    Args:
        words: without the two special ones, each once.
        buckets: if any, an unknown word is not ``<unk>`` but falls into one of these by a hash of its letters.

    Raises:
        ValueError: a word comes twice.
    """

    FILE = "vocabulary.json"

    def __init__(self, words: Iterable[str], buckets: int = 0) -> None:
        self.words = [PADDING, UNKNOWN, *words]
        self.buckets = buckets
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            twice = next(word for index, word in enumerate(self.words) if self._ids[word] != index)
            raise ValueError(
                f"{twice!r} comes twice: a vocabulary holds every word once, and {PADDING}, {UNKNOWN} itself"
            )

    def __len__(self) -> int:
        """V, rows of the table of word vectors."""
        return len(self.words) + self.buckets

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The id of each token."""
        return [self._ids[token] if token in self._ids else self._unknown(token) for token in tokens]

    def save(self, path: Path) -> None:
        """Write JSON: ``words``, of which the place is the id, and ``buckets``."""
        content = {"words": self.words, "buckets": self.buckets}
        path.write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: the file holds something else.
        """
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("words", [])[:2] != [PADDING, UNKNOWN]:
            raise ValueError(f"{path} is no vocabulary: expected 'words' that begin with {PADDING!r}, {UNKNOWN!r}")
        return cls(content["words"][2:], content["buckets"])

    def _unknown(self, token: str) -> int:
        if not self.buckets or token == UNKNOWN:
            return 1
        return len(self.words) + zlib.crc32(token.encode()) % self.buckets
