"""Base class of the vectorizers that keep one vector per word."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bifocal.text.format import EncodedCaptions, TextFormat
from bifocal.text.word_vectors.word_vectors import WordVectors


@dataclass
class WordVectorizer:
    """Token ids with word vectors, which ``fit`` sets."""

    word_vectors: WordVectors = field(init=False, repr=False)

    @property
    def format(self) -> TextFormat:
        return TextFormat("tokens", self.word_vectors.dim)

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        return self.word_vectors.encode(captions)

    def save(self, directory: Path) -> None:
        self.word_vectors.save(directory)

    def load(self, directory: Path) -> None:
        self.word_vectors = WordVectors.load(directory)
