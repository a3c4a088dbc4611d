"""Words as symbols, the input of ELMo: bytes of UTF-8 between marks. Loads without torch, for ``bifocal.onnx``."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260
SYMBOLS = 261
"""Size of the alphabet: bytes of UTF-8 and the five special symbols."""
Array = NDArray[np.int64]


def spell(token: str | int, length: int) -> list[int]:
    """Return the symbols of a word, or of a sentence boundary, truncated and padded to ``length``."""
    letters = [token] if isinstance(token, int) else list(token.encode()[: length - 2])
    symbols = [BEGIN_WORD, *letters, END_WORD]
    return symbols + [PADDING] * (length - len(symbols))


def spell_sentences(sentences: Sequence[Sequence[str]], length: int) -> tuple[Array, Array, Array]:
    """Return symbols (N, length) of different words, their rows as words (T, B), and lengths (B,), with boundaries."""
    marked: list[list[str | int]] = [[BEGIN_SENTENCE, *sentence, END_SENTENCE] for sentence in sentences]
    rows = {word: row for row, word in enumerate(dict.fromkeys(word for line in marked for word in line))}
    lengths = np.array([len(line) for line in marked], dtype=np.int64)
    words = np.zeros((int(lengths.max()), len(marked)), dtype=np.int64)
    for column, line in enumerate(marked):
        words[: len(line), column] = [rows[word] for word in line]
    return np.array([spell(word, length) for word in rows], dtype=np.int64), words, lengths
