"""Mean of static token vectors. Loads without torch, for ``bifocal.onnx``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from bifocal.onnx.text.tokenizer import TOKENIZER, SubwordTokenizer
from bifocal.onnx.text.tokens import MAX_TOKENS, tokenize
from bifocal.onnx.text.vocabulary import Vocabulary

VECTORS = "static.safetensors"
Array = NDArray[Any]


@dataclass
class TokenMeans:
    """Tokens, their vectors, and the unit vectors of captions."""

    tokens: SubwordTokenizer | Vocabulary  # subwords, or words
    vectors: NDArray[np.float32]  # (V, K) float32, with the weights of the tokens

    def encode(self, captions: Sequence[str]) -> tuple[list[NDArray[np.int32]], dict[str, int]]:
        """Return the known token ids of each caption, and token counts."""
        if isinstance(self.tokens, SubwordTokenizer):
            rows, unknown = self.tokens.words(captions), self.tokens.unknown
            known = [ids[ids != unknown] for ids in rows]
        else:
            rows = [np.array(self.tokens.encode(tokenize(text)[:MAX_TOKENS]), dtype=np.int32) for text in captions]
            known = [ids[ids > 1] for ids in rows]
        counts = {
            "tokens": sum(len(ids) for ids in rows),
            "unknown_tokens": sum(len(ids) for ids in rows) - sum(len(ids) for ids in known),
            "empty_captions": sum(not len(ids) for ids in known),
        }
        return known, counts

    def means(self, rows: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
        """Return the mean vector (B, K) of each row of ids, divided by its norm; zero without ids."""
        sums = np.zeros((len(rows), self.vectors.shape[1]), dtype=np.float32)
        for number, ids in enumerate(rows):
            sums[number] = self.vectors[ids].sum(axis=0)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (sums / np.where(norms > 0, norms, 1)).astype(np.float32)
        return unit

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return the vectors (B, K) of B sentences, and ones (B,)."""
        return self.means(self.encode(sentences)[0]), np.ones(len(sentences), dtype=np.int64)

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        """Return whether each word has a known token."""
        return {word: len(ids) > 0 for word, ids in zip(tokens, self.encode(tokens)[0], strict=True)}

    def save(self, directory: Path) -> None:
        """Write the tokens and their vectors."""
        file = TOKENIZER if isinstance(self.tokens, SubwordTokenizer) else Vocabulary.FILE
        self.tokens.save(directory / file)
        save_file({"vectors": np.ascontiguousarray(self.vectors)}, directory / VECTORS)

    @classmethod
    def load(cls, directory: Path) -> "TokenMeans":
        file = directory / Vocabulary.FILE
        tokens = Vocabulary.load(file) if file.is_file() else SubwordTokenizer.read(directory / TOKENIZER)
        return cls(tokens, load_file(directory / VECTORS)["vectors"])
