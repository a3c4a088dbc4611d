"""A vocabulary with one vector per word."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from bifocal.onnx.text.tokens import MAX_TOKENS, UNKNOWN, tokenize
from bifocal.onnx.text.vocabulary import Vocabulary
from bifocal.text.format import EncodedCaptions

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

    def encode(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the token ids of each caption, at most ``MAX_TOKENS``; an empty caption is one ``<unk>``."""
        counts = {"tokens": 0, "unknown_tokens": 0, "empty_captions": 0, "truncated_captions": 0}
        values = []
        for caption in captions:
            tokens = tokenize(caption)
            counts["empty_captions"] += not tokens
            counts["truncated_captions"] += len(tokens) > MAX_TOKENS
            tokens = tokens[:MAX_TOKENS]
            counts["tokens"] += len(tokens)
            counts["unknown_tokens"] += sum(token not in self.vocabulary for token in tokens)
            values.append(np.array(self.vocabulary.encode(tokens or [UNKNOWN]), dtype=np.int32))
        return EncodedCaptions(values, counts=counts)

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
                f"{directory} has {len(vectors)} word vectors for {len(vocabulary)} words: write the text again"
            )
        return cls(vocabulary, vectors)
