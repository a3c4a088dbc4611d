"""Words with one vector each, and the base of the vectorizers that keep them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from bifocal.onnx.text.captions import EncodedCaptions, NumpyVectorizer, TextFormat, Vocabulary

VECTORS = "word_vectors.safetensors"


@dataclass
class WordVectors:
    """Words and their vectors."""

    vocabulary: Vocabulary  # V words
    vectors: NDArray[np.float32]  # (V, K) float32; row 0 (padding) is zero

    @classmethod
    def from_words(cls, words: Sequence[str], vectors: NDArray[np.float32]) -> "WordVectors":
        """Add padding (zero) and ``<unk>`` (mean of all vectors) before the words."""
        special = np.stack([np.zeros_like(vectors[0]), vectors.mean(axis=0)])
        return cls(Vocabulary(words), np.concatenate([special, vectors]).astype(np.float32))

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    def save(self, directory: Path) -> None:
        """Write ``vocabulary.json`` and ``word_vectors.safetensors``."""
        self.vocabulary.save(directory / Vocabulary.FILE)
        save_file({"vectors": self.vectors}, directory / VECTORS)

    @classmethod
    def load(cls, directory: Path) -> "WordVectors":
        vocabulary = Vocabulary.load(directory / Vocabulary.FILE)
        vectors = load_file(directory / VECTORS)["vectors"]
        if len(vectors) != len(vocabulary):
            raise ValueError(
                f"{directory} has {len(vectors)} word vectors for {len(vocabulary)} words: "
                "write the text again"
            )
        return cls(vocabulary, vectors)


@dataclass
class WordVectorizer(NumpyVectorizer):
    """Token ids with word vectors, which ``fit`` sets."""

    word_vectors: WordVectors = field(init=False, repr=False)

    @property
    def format(self) -> TextFormat:
        return TextFormat("tokens", self.word_vectors.dim)

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        return self.word_vectors.vocabulary.encode_captions(captions)

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        return self.word_vectors.vocabulary.known(tokens)

    def save(self, directory: Path) -> None:
        self.word_vectors.save(directory)

    def load(self, directory: Path) -> None:
        self.word_vectors = WordVectors.load(directory)
