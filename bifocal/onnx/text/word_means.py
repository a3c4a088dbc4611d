"""Mean of word vectors. Loads without torch, for ``bifocal.onnx``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bifocal.onnx.text.tokens import MAX_TOKENS, tokenize
from bifocal.onnx.text.vocabulary import Vocabulary

VECTORS = "word_vectors.safetensors"
Array = NDArray[Any]


@dataclass
class WordMeans:
    """Words, their vectors, and the mean vectors of captions, as ``MeanWordVectors`` computes them."""

    vocabulary: Vocabulary  # V words
    vectors: NDArray[np.float32]  # (V, K) float32

    @classmethod
    def load(cls, directory: Path) -> "WordMeans":
        """Read the words and vectors of a text."""
        return cls(Vocabulary.load(directory / Vocabulary.FILE), load_file(directory / VECTORS)["vectors"])

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return the vectors (B, K) of B sentences, zero without known words, and ones (B,)."""
        means = np.zeros((len(sentences), self.vectors.shape[1]), dtype=np.float32)
        for row, sentence in enumerate(sentences):
            known = [number for number in self.vocabulary.encode(tokenize(sentence)[:MAX_TOKENS]) if number > 1]
            means[row] = self.vectors[known].sum(axis=0) / max(len(known), 1)
        return means, np.ones(len(sentences), dtype=np.int64)

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        """Return whether each token has a vector."""
        return self.vocabulary.known(tokens)
