"""Token ids with published word vectors."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from bifocal.text.format import Layout, Rows
from bifocal.text.tokens import tokenize
from bifocal.text.vocabulary import Vocabulary
from bifocal.text.word_vectors.files import Vector, WordFile, read_word_file
from bifocal.text.word_vectors.word_vectors import WordVectors

UNKNOWN_NAMES = ("<unk>", "UNK", "<UNK>")
"""How files call the vector of unknown words."""


@dataclass
class PretrainedWordVectors:
    """Token ids with word vectors of a file; ``bifocal.text.word_vectors.files.read_word_file`` lists the formats.

    The vocabulary is what the training captions and the file have in common (captions are in lower case).

    Args:
        unknown: what stands for another word: "vector", the file's own ``<unk>`` or ``UNK``; "mean", the mean of the
            vectors; "bucket", one of ``buckets`` random vectors like the others, by a hash of the word.
        buckets: number of these.
        min_count: how often a word must occur in the training captions.
        path: the file.
    """

    unknown: Literal["vector", "mean", "bucket"] = "mean"
    buckets: int = 1000
    min_count: int = 1
    path: Path | str | None = None
    table: WordVectors = field(init=False, repr=False)

    @property
    def layout(self) -> Layout:
        """Tokens, and the dimension of the vectors that they stand for."""
        return Layout("tokens", self.table.dim)

    def fit(self, captions: Sequence[str], seed: int) -> dict[str, float]:
        """Look up the words of ``captions``.

        Raises:
            ValueError: no path, or nothing of the captions in it, or no vector for unknown words.
        """
        if self.path is None:
            raise ValueError("PretrainedWordVectors reads a file of word vectors: set path to its path")
        frequent = frequent_words(captions, self.min_count)
        file = read_word_file(Path(self.path), [*frequent, *UNKNOWN_NAMES])
        words = [word for word in frequent if word in file.vectors]
        if not words:
            raise ValueError(f"{self.path} has none of the captions' {len(frequent)} words: is it of their language?")
        vectors = np.stack([file.vectors[word] for word in words])
        rows = [np.zeros((1, file.dim), np.float32), self._unknown(file, vectors)[None], vectors]
        buckets = self.buckets if self.unknown == "bucket" else 0
        if buckets:
            generator = np.random.default_rng(seed)
            noise = generator.standard_normal((buckets, file.dim), np.float32)
            rows.append(vectors.mean(axis=0) + vectors.std(axis=0) * noise)
        self.table = WordVectors(Vocabulary(words, buckets), np.concatenate(rows))
        return {
            "words": len(words),
            "words_without_vector": len(frequent) - len(words),
            "duplicate_words": file.duplicates,
            "undecodable_words": file.undecodable,
        }

    def rows(self, captions: Sequence[str]) -> Rows:
        """Token ids of each caption."""
        return self.table.encode(captions)

    def save(self, directory: Path) -> None:
        """Write the vocabulary and the vectors."""
        self.table.save(directory)

    def load(self, directory: Path) -> None:
        """Read what :meth:`save` wrote."""
        self.table = WordVectors.load(directory)

    def _unknown(self, file: WordFile, vectors: Vector) -> Vector:
        if self.unknown != "vector":
            mean: Vector = vectors.mean(axis=0)
            return mean
        for name in UNKNOWN_NAMES:
            if name in file.vectors:
                return file.vectors[name]
        raise ValueError(
            f"{self.path} has no vector for unknown words, called {', '.join(UNKNOWN_NAMES)}: "
            "set unknown to 'mean' or 'bucket'"
        )


def frequent_words(captions: Sequence[str], min_count: int) -> list[str]:
    """Words that occur at least ``min_count`` times, the most frequent first, in alphabetical order among equals."""
    counts = Counter(token for caption in captions for token in tokenize(caption))
    return sorted(
        (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
    )
