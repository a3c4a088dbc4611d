"""Token ids with published word vectors."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bifocal.onnx.text.tokens import tokenize
from bifocal.onnx.text.vocabulary import Vocabulary
from bifocal.text.vectorizers.base import ignored_arguments
from bifocal.text.vectorizers.static.word_vectors import WordVectorizer
from bifocal.text.word_vectors.files import Vector, WordVectorFile, read_word_vectors
from bifocal.text.word_vectors.word_vectors import WordVectors

UNKNOWN_NAMES = ("<unk>", "UNK", "<UNK>")
"""Names of the vector of unknown words in published files."""


@dataclass
class PretrainedWordVectors(WordVectorizer):
    """Token ids with word vectors of a file; ``bifocal.text.word_vectors.files.read_word_vectors`` lists the formats.

    The vocabulary is the set of words that are in both the training captions (in lower case) and the file.

    Args:
        unknown: vector of other words: "vector", the file's vector ``<unk>`` or ``UNK``; "mean", the mean of the
            vectors; "bucket", one of ``buckets`` random vectors with the statistics of the file's vectors, chosen by a
            hash of the word.
        buckets: number of random vectors for unknown words.
        min_count: minimum number of occurrences of a word in the training captions.
        path: file of word vectors; required.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "glove.txt"
        >>> _ = path.write_text("a 1 0\\ndog 0 1\\n")
        >>> vectorizer = PretrainedWordVectors(path=path)
        >>> vectorizer.fit(["a dog", "a zebra"], seed=0)["words_without_vector"]
        1
        >>> vectorizer.transform(["a dog", "a zebra"]).values
        [array([2, 3], dtype=int32), array([2, 1], dtype=int32)]
    """

    unknown: Literal["vector", "mean", "bucket"] = "mean"
    buckets: int = 1000
    min_count: int = 1
    path: Path | str | None = None

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        if arguments.get("path") is None:
            yield "path is missing: set it to a file of word vectors"
        if arguments.get("unknown") != "bucket":
            yield from ignored_arguments(arguments, ["buckets"], "unless unknown is 'bucket'")

    def fit(self, captions: Sequence[str], seed: int, checkpoints: Path | None = None) -> dict[str, float]:
        """Look up the words of ``captions`` in the file."""
        if self.path is None:
            raise ValueError("PretrainedWordVectors needs path: a file of word vectors")
        frequent = frequent_words(captions, self.min_count)
        file = read_word_vectors(Path(self.path), [*frequent, *UNKNOWN_NAMES])
        words = [word for word in frequent if word in file.vectors]
        if not words:
            raise ValueError(
                f"{self.path} has none of the {len(frequent)} words of the captions: check the language of the file"
            )
        vectors = np.stack([file.vectors[word] for word in words])
        rows = [np.zeros((1, file.dim), np.float32), self._unknown_vector(file, vectors)[None], vectors]
        buckets = self.buckets if self.unknown == "bucket" else 0
        if buckets:
            generator = np.random.default_rng(seed)
            noise = generator.standard_normal((buckets, file.dim), np.float32)
            rows.append(vectors.mean(axis=0) + vectors.std(axis=0) * noise)
        self.word_vectors = WordVectors(Vocabulary(words, buckets), np.concatenate(rows))
        return {
            "words": len(words),
            "words_without_vector": len(frequent) - len(words),
            "duplicate_words": file.duplicates,
            "undecodable_words": file.undecodable,
        }

    def _unknown_vector(self, file: WordVectorFile, vectors: Vector) -> Vector:
        if self.unknown != "vector":
            mean: Vector = vectors.mean(axis=0)
            return mean
        for name in UNKNOWN_NAMES:
            if name in file.vectors:
                return file.vectors[name]
        raise ValueError(
            f"{self.path} has no vector for unknown words, named {', '.join(UNKNOWN_NAMES)}: "
            "set unknown to 'mean' or 'bucket'"
        )


def frequent_words(captions: Sequence[str], min_count: int) -> list[str]:
    """Return words that occur at least ``min_count`` times, most frequent first, ties in alphabetical order."""
    counts = Counter(token for caption in captions for token in tokenize(caption))
    return sorted(
        (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
    )
